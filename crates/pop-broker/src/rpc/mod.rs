//! The gRPC service `apache.rocketmq.v2.MessagingService`: each call in a file of its
//! family, this file only says which.
//!
//! Errors travel in the `status` field of a normal response; a gRPC error would make the
//! official clients drop the connection. Only Telemetry, whose first message has no place
//! for a status, ends with one.

mod convert;
mod headers;
mod receive;
mod route;
mod send;
mod settings;
mod settle;
mod status;
mod telemetry;

use std::{pin::Pin, sync::Arc, time::Duration};

use futures::Stream;
use pop_proto::v2::{
    self,
    messaging_service_server::{MessagingService, MessagingServiceServer},
};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};

use crate::Broker;
use headers::Caller;
use status::{Refusal, not_implemented};

/// How requests are carried.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RpcOptions {
    /// The longest that a receive is held for a first message.
    pub long_poll_max: Duration,
    /// How many receives may be held at a time; more are told to come back.
    pub held_receives_max: usize,
    /// The largest request that is read.
    pub request_bytes_max: usize,
}

impl Default for RpcOptions {
    fn default() -> Self {
        Self {
            long_poll_max: Duration::from_secs(20),
            held_receives_max: 10_000,
            // A batch of messages at their limits is cut off here, as a mistake; eight of
            // the largest go through.
            request_bytes_max: 33 << 20,
        }
    }
}

/// The service on a broker.
#[must_use]
pub fn service(broker: Broker, options: RpcOptions) -> MessagingServiceServer<Messaging> {
    let request_bytes_max = options.request_bytes_max;
    let messaging = Messaging {
        held: Arc::new(Semaphore::new(options.held_receives_max)),
        broker,
        options,
    };
    MessagingServiceServer::new(messaging).max_decoding_message_size(request_bytes_max)
}

/// The calls of the service.
#[derive(Debug)]
pub struct Messaging {
    broker: Broker,
    options: RpcOptions,
    held: Arc<Semaphore>,
}

/// A stream of frames to a client.
type Frames<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Answers a call: its own outcome, or the refusal in the shape of the answer.
macro_rules! answer {
    ($request:expr, $refused:expr, |$caller:ident, $message:ident| $work:expr) => {{
        let ($caller, $message) = match Caller::of($request.metadata()) {
            Ok(caller) => (caller, $request.into_inner()),
            Err(refusal) => return Ok(Response::new($refused(refusal.status()))),
        };
        let language = $caller.language;
        let outcome: Result<_, Refusal> = $work.await;
        Ok(Response::new(match outcome {
            Ok(response) => response,
            Err(refusal) => $refused(refusal.status_for(language)),
        }))
    }};
}

#[tonic::async_trait]
impl MessagingService for Messaging {
    type ReceiveMessageStream = Frames<v2::ReceiveMessageResponse>;
    type PullMessageStream = Frames<v2::PullMessageResponse>;
    type TelemetryStream = Frames<v2::TelemetryCommand>;

    async fn query_route(
        &self,
        request: Request<v2::QueryRouteRequest>,
    ) -> Result<Response<v2::QueryRouteResponse>, Status> {
        let refused = |status| v2::QueryRouteResponse {
            status: Some(status),
            message_queues: Vec::new(),
        };
        answer!(request, refused, |caller, message| self
            .route(&caller, message))
    }

    async fn query_assignment(
        &self,
        request: Request<v2::QueryAssignmentRequest>,
    ) -> Result<Response<v2::QueryAssignmentResponse>, Status> {
        let refused = |status| v2::QueryAssignmentResponse {
            status: Some(status),
            assignments: Vec::new(),
        };
        answer!(request, refused, |caller, message| self
            .assignment(&caller, message))
    }

    async fn heartbeat(
        &self,
        request: Request<v2::HeartbeatRequest>,
    ) -> Result<Response<v2::HeartbeatResponse>, Status> {
        let refused = |status| v2::HeartbeatResponse {
            status: Some(status),
        };
        answer!(request, refused, |_caller, _message| async {
            Ok(v2::HeartbeatResponse {
                status: Some(status::ok()),
            })
        })
    }

    async fn notify_client_termination(
        &self,
        request: Request<v2::NotifyClientTerminationRequest>,
    ) -> Result<Response<v2::NotifyClientTerminationResponse>, Status> {
        let refused = |status| v2::NotifyClientTerminationResponse {
            status: Some(status),
        };
        answer!(request, refused, |_caller, _message| async {
            Ok(v2::NotifyClientTerminationResponse {
                status: Some(status::ok()),
            })
        })
    }

    async fn send_message(
        &self,
        request: Request<v2::SendMessageRequest>,
    ) -> Result<Response<v2::SendMessageResponse>, Status> {
        let refused = |status| v2::SendMessageResponse {
            status: Some(status),
            entries: Vec::new(),
        };
        answer!(request, refused, |caller, message| self
            .send(&caller, message))
    }

    async fn receive_message(
        &self,
        request: Request<v2::ReceiveMessageRequest>,
    ) -> Result<Response<Self::ReceiveMessageStream>, Status> {
        let refused = |status| receive::only(status);
        answer!(request, refused, |caller, message| self
            .receive(&caller, message))
    }

    async fn ack_message(
        &self,
        request: Request<v2::AckMessageRequest>,
    ) -> Result<Response<v2::AckMessageResponse>, Status> {
        let refused = |status| v2::AckMessageResponse {
            status: Some(status),
            entries: Vec::new(),
        };
        answer!(request, refused, |caller, message| self
            .ack(&caller, message))
    }

    async fn change_invisible_duration(
        &self,
        request: Request<v2::ChangeInvisibleDurationRequest>,
    ) -> Result<Response<v2::ChangeInvisibleDurationResponse>, Status> {
        // The Java client takes the handle from the answer whatever its status says.
        let handle = request.get_ref().receipt_handle.clone();
        let refused = |status| v2::ChangeInvisibleDurationResponse {
            status: Some(status),
            receipt_handle: handle.clone(),
        };
        answer!(request, refused, |caller, message| self
            .change_invisible(&caller, message))
    }

    async fn telemetry(
        &self,
        request: Request<Streaming<v2::TelemetryCommand>>,
    ) -> Result<Response<Self::TelemetryStream>, Status> {
        let caller = Caller::of(request.metadata())
            .map_err(|refusal| Status::invalid_argument(refusal.text()))?;
        Ok(Response::new(self.follow(caller, request.into_inner())))
    }

    async fn forward_message_to_dead_letter_queue(
        &self,
        _request: Request<v2::ForwardMessageToDeadLetterQueueRequest>,
    ) -> Result<Response<v2::ForwardMessageToDeadLetterQueueResponse>, Status> {
        Ok(Response::new(v2::ForwardMessageToDeadLetterQueueResponse {
            status: Some(not_implemented("ForwardMessageToDeadLetterQueue")),
        }))
    }

    async fn end_transaction(
        &self,
        _request: Request<v2::EndTransactionRequest>,
    ) -> Result<Response<v2::EndTransactionResponse>, Status> {
        Ok(Response::new(v2::EndTransactionResponse {
            status: Some(not_implemented("EndTransaction")),
        }))
    }

    async fn recall_message(
        &self,
        _request: Request<v2::RecallMessageRequest>,
    ) -> Result<Response<v2::RecallMessageResponse>, Status> {
        Ok(Response::new(v2::RecallMessageResponse {
            status: Some(not_implemented("RecallMessage")),
            message_id: String::new(),
        }))
    }

    async fn sync_lite_subscription(
        &self,
        _request: Request<v2::SyncLiteSubscriptionRequest>,
    ) -> Result<Response<v2::SyncLiteSubscriptionResponse>, Status> {
        Ok(Response::new(v2::SyncLiteSubscriptionResponse {
            status: Some(not_implemented("SyncLiteSubscription")),
        }))
    }

    // No official client calls the rest; the reference server does not have it either.

    async fn pull_message(
        &self,
        _request: Request<v2::PullMessageRequest>,
    ) -> Result<Response<Self::PullMessageStream>, Status> {
        Err(Status::unimplemented(
            "PullMessage is not offered: receive with ReceiveMessage",
        ))
    }

    async fn update_offset(
        &self,
        _request: Request<v2::UpdateOffsetRequest>,
    ) -> Result<Response<v2::UpdateOffsetResponse>, Status> {
        Err(Status::unimplemented("UpdateOffset is not offered"))
    }

    async fn get_offset(
        &self,
        _request: Request<v2::GetOffsetRequest>,
    ) -> Result<Response<v2::GetOffsetResponse>, Status> {
        Err(Status::unimplemented("GetOffset is not offered"))
    }

    async fn query_offset(
        &self,
        _request: Request<v2::QueryOffsetRequest>,
    ) -> Result<Response<v2::QueryOffsetResponse>, Status> {
        Err(Status::unimplemented("QueryOffset is not offered"))
    }
}
