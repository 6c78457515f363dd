//! Where to send and receive: here. Endpoints are those the client asked with, verbatim:
//! anything else makes clients open a second connection.

use pop_proto::v2::{
    Assignment, Broker as ProtoBroker, Endpoints, MessageQueue, Permission, QueryAssignmentRequest,
    QueryAssignmentResponse, QueryRouteRequest, QueryRouteResponse, Resource,
};

use super::{
    Messaging,
    convert::message_type,
    headers::Caller,
    status::{self, Refusal},
};
use crate::Topic;

/// One name for the one server: clients take another name for another machine.
const BROKER_NAME: &str = "pop";
/// Any queue: the broker pops from all.
const ANY_QUEUE: i32 = -1;

impl Messaging {
    pub(super) async fn route(
        &self,
        caller: &Caller,
        request: QueryRouteRequest,
    ) -> Result<QueryRouteResponse, Refusal> {
        let topic = self
            .broker
            .route(&caller.topic(request.topic.as_ref())?)
            .await?;
        let resource = request.topic.unwrap_or_default();
        let queues = (0..topic.record().queues).map(|id| {
            let id = i32::try_from(id).unwrap_or(i32::MAX);
            queue(&topic, id, resource.clone(), request.endpoints.clone())
        });
        Ok(QueryRouteResponse {
            status: Some(status::ok()),
            message_queues: queues.collect(),
        })
    }

    /// Every consumer of a group gets the same answer: they share the work by popping
    /// from the same queues.
    pub(super) async fn assignment(
        &self,
        caller: &Caller,
        request: QueryAssignmentRequest,
    ) -> Result<QueryAssignmentResponse, Refusal> {
        caller.group(request.group.as_ref())?;
        let topic = self
            .broker
            .route(&caller.topic(request.topic.as_ref())?)
            .await?;
        let resource = request.topic.unwrap_or_default();
        Ok(QueryAssignmentResponse {
            status: Some(status::ok()),
            assignments: vec![Assignment {
                message_queue: Some(queue(&topic, ANY_QUEUE, resource, request.endpoints)),
            }],
        })
    }
}

fn queue(topic: &Topic, id: i32, resource: Resource, endpoints: Option<Endpoints>) -> MessageQueue {
    MessageQueue {
        topic: Some(resource),
        id,
        permission: Permission::ReadWrite.into(),
        broker: Some(ProtoBroker {
            name: BROKER_NAME.into(),
            // 0 is the master, the only one that Java and Python use.
            id: 0,
            endpoints,
        }),
        accept_message_types: topic
            .record()
            .kinds
            .iter()
            .map(|kind| message_type(*kind).into())
            .collect(),
    }
}
