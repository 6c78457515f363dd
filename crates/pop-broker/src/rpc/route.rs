//! Where a topic is: here, by whatever name the client found this broker.

use pop_model::MessageKind;
use pop_proto::v2::{
    Assignment, Broker, Code, Endpoints, MessageQueue, Permission, QueryAssignmentRequest,
    QueryAssignmentResponse, QueryRouteRequest, QueryRouteResponse, Resource,
};

use super::{Rpc, convert, headers::Caller, status, status::Refusal};
use crate::Topic;

/// The one broker that clients see.
const BROKER_NAME: &str = "pop-broker";
/// Clients use only the broker with this id, the master.
const BROKER_ID: i32 = 0;
/// Any queue: the broker chooses, and every consumer of a group pops from all of them.
const ANY_QUEUE: i32 = -1;
/// More than this is not an access point; each queue of the answer repeats it.
const ADDRESSES_MAX: usize = 16;
const HOST_BYTES_MAX: usize = 255;

pub(super) async fn query(
    rpc: &Rpc,
    caller: &Caller,
    request: QueryRouteRequest,
) -> Result<QueryRouteResponse, Refusal> {
    let resource = request.topic.unwrap_or_default();
    let endpoints = access_point(request.endpoints)?;
    let topic = rpc.broker.route(&caller.readable_topic(&resource)?).await?;
    let queue = |queue: u32| {
        // The limits keep the number of queues far below this.
        let id = i32::try_from(queue).unwrap_or(i32::MAX);
        message_queue(&topic, resource.clone(), endpoints.clone(), id)
    };
    Ok(QueryRouteResponse {
        status: Some(status::ok()),
        message_queues: (0..topic.record().queues).map(queue).collect(),
    })
}

/// One assignment for everybody: load is shared because all pop from the same queues.
pub(super) async fn assignment(
    rpc: &Rpc,
    caller: &Caller,
    request: QueryAssignmentRequest,
) -> Result<QueryAssignmentResponse, Refusal> {
    let resource = request.topic.unwrap_or_default();
    caller.group(&request.group.unwrap_or_default())?;
    let endpoints = access_point(request.endpoints)?;
    let topic = rpc.broker.route(&caller.readable_topic(&resource)?).await?;
    Ok(QueryAssignmentResponse {
        status: Some(status::ok()),
        assignments: vec![Assignment {
            message_queue: Some(message_queue(&topic, resource, endpoints, ANY_QUEUE)),
        }],
    })
}

/// Topic and endpoints as the client wrote them: clients compare them as text, and with
/// another spelling they connect once more.
fn message_queue(topic: &Topic, resource: Resource, endpoints: Endpoints, id: i32) -> MessageQueue {
    MessageQueue {
        topic: Some(resource),
        id,
        permission: Permission::ReadWrite.into(),
        broker: Some(Broker {
            name: BROKER_NAME.into(),
            id: BROKER_ID,
            endpoints: Some(endpoints),
        }),
        accept_message_types: topic.record().kinds.iter().map(message_type).collect(),
    }
}

fn message_type(kind: &MessageKind) -> i32 {
    convert::message_type(*kind).into()
}

fn access_point(endpoints: Option<Endpoints>) -> Result<Endpoints, Refusal> {
    let endpoints = endpoints.unwrap_or_default();
    let addresses = &endpoints.addresses;
    let wrong = if addresses.is_empty() {
        "the request names no endpoints: give those that the client is configured with"
    } else if addresses.len() > ADDRESSES_MAX
        || addresses
            .iter()
            .any(|address| address.host.len() > HOST_BYTES_MAX)
    {
        "the request's endpoints have too many addresses, or one that is too long"
    } else {
        return Ok(endpoints);
    };
    Err(Refusal::new(Code::IllegalAccessPoint, wrong))
}
