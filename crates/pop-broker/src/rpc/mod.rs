//! The service `apache.rocketmq.v2.MessagingService`, exactly as the official clients
//! expect it.
//!
//! What went wrong is told in the `status` of an ordinary response: a gRPC error makes
//! clients drop the whole broker. Only telemetry, which has no response, ends with one.
//! Every call works from its own request alone. What a client said on its telemetry
//! stream decides nothing here, because some clients never say it again after a restart of
//! the broker.

mod ack;
mod convert;
mod digest;
mod headers;
mod push;
mod receive;
mod route;
mod send;
mod settings;
mod status;
mod telemetry;
mod time;

use std::{sync::Arc, time::Duration};

use futures::stream::{BoxStream, Empty};
use pop_model::{Clock, SystemClock};
use pop_proto::v2::{
    self,
    messaging_service_server::{MessagingService, MessagingServiceServer},
};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Streaming};

use crate::Broker;
use headers::Caller;
use push::PushConsumers;
pub use push::PushOptions;
use status::{Answer, Refusal};

/// The largest request: what the reference server takes, so that no batch that works
/// with it fails here. Each message of a batch has the limit of a single one.
const REQUEST_BYTES_MAX: usize = 130 << 20;

/// How the service works.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RpcOptions {
    /// The longest that a receive waits for a first message, whatever it asks for.
    pub long_poll_max: Duration,
    /// How many receives may wait at a time; more are told to come back later.
    pub polls_max: usize,
    /// How the deliveries of push consumers are renewed.
    pub push: PushOptions,
    /// Tells when an answer is made.
    pub clock: Arc<dyn Clock>,
}

impl RpcOptions {
    /// The defaults: polls of up to 20 s, ten thousand of them.
    #[must_use]
    pub fn new() -> Self {
        Self {
            long_poll_max: Duration::from_secs(20),
            polls_max: 10_000,
            push: PushOptions::default(),
            clock: Arc::new(SystemClock::resume(None)),
        }
    }
}

impl Default for RpcOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The service of a broker, for a [`Listener`](crate::listener::Listener) or any other
/// tonic server.
#[must_use]
pub fn service(broker: Broker, options: RpcOptions) -> MessagingServiceServer<Rpc> {
    // More permits than that are as good as no limit.
    let polls = Semaphore::new(options.polls_max.min(Semaphore::MAX_PERMITS));
    let rpc = Rpc {
        push: PushConsumers::new(broker.clone(), options.push.clone()),
        broker,
        polls: Arc::new(polls),
        options,
    };
    MessagingServiceServer::new(rpc).max_decoding_message_size(REQUEST_BYTES_MAX)
}

/// The calls of the service; one file each, or each family.
#[derive(Debug)]
pub struct Rpc {
    broker: Broker,
    options: RpcOptions,
    polls: Arc<Semaphore>,
    push: PushConsumers,
}

/// Runs a call and puts what it was refused for into the status of its response.
async fn answer<A: Answer>(
    caller: &Caller,
    call: impl Future<Output = Result<A, Refusal>>,
) -> Result<Response<A>, tonic::Status> {
    let outcome = match caller.identified() {
        Ok(()) => call.await,
        Err(refusal) => Err(refusal),
    };
    let answer = outcome.unwrap_or_else(|refusal| A::refused(refusal.status(caller)));
    Ok(Response::new(answer))
}

/// Answers a call that this version does not offer.
fn not_offered<T, A: Answer>(
    request: &Request<T>,
    call: &str,
) -> Result<Response<A>, tonic::Status> {
    let caller = Caller::of(request);
    let why = format!("{call} is not offered by this version of the broker");
    let refusal = Refusal::new(v2::Code::NotImplemented, why);
    Ok(Response::new(A::refused(refusal.status(&caller))))
}

/// Answers a call that the reference server does not have either: no client calls it.
fn unknown<A>(call: &str) -> Result<Response<A>, tonic::Status> {
    Err(tonic::Status::unimplemented(format!(
        "{call} is not offered by this broker"
    )))
}

#[tonic::async_trait]
impl MessagingService for Rpc {
    type ReceiveMessageStream = receive::Frames;
    type PullMessageStream = Empty<Result<v2::PullMessageResponse, tonic::Status>>;
    type TelemetryStream = BoxStream<'static, Result<v2::TelemetryCommand, tonic::Status>>;

    async fn query_route(
        &self,
        request: Request<v2::QueryRouteRequest>,
    ) -> Result<Response<v2::QueryRouteResponse>, tonic::Status> {
        let caller = Caller::of(&request);
        answer(&caller, route::query(self, &caller, request.into_inner())).await
    }

    async fn query_assignment(
        &self,
        request: Request<v2::QueryAssignmentRequest>,
    ) -> Result<Response<v2::QueryAssignmentResponse>, tonic::Status> {
        let caller = Caller::of(&request);
        answer(
            &caller,
            route::assignment(self, &caller, request.into_inner()),
        )
        .await
    }

    async fn heartbeat(
        &self,
        request: Request<v2::HeartbeatRequest>,
    ) -> Result<Response<v2::HeartbeatResponse>, tonic::Status> {
        let caller = Caller::of(&request);
        answer(&caller, telemetry::heartbeat(self, &caller)).await
    }

    async fn telemetry(
        &self,
        request: Request<Streaming<v2::TelemetryCommand>>,
    ) -> Result<Response<Self::TelemetryStream>, tonic::Status> {
        let caller = Caller::of(&request);
        caller.identified().map_err(Refusal::error)?;
        // The response's headers go with this, before the client has said anything: one
        // client waits for them, without a limit, before it does anything else.
        let answers = telemetry::answers(self, caller, request.into_inner());
        Ok(Response::new(answers))
    }

    async fn notify_client_termination(
        &self,
        request: Request<v2::NotifyClientTerminationRequest>,
    ) -> Result<Response<v2::NotifyClientTerminationResponse>, tonic::Status> {
        let caller = Caller::of(&request);
        answer(&caller, telemetry::terminated(self, &caller)).await
    }

    async fn send_message(
        &self,
        request: Request<v2::SendMessageRequest>,
    ) -> Result<Response<v2::SendMessageResponse>, tonic::Status> {
        let caller = Caller::of(&request);
        answer(&caller, send::messages(self, &caller, request.into_inner())).await
    }

    async fn receive_message(
        &self,
        request: Request<v2::ReceiveMessageRequest>,
    ) -> Result<Response<Self::ReceiveMessageStream>, tonic::Status> {
        let caller = Caller::of(&request);
        let frames = receive::frames(self, &caller, request.into_inner()).await;
        Ok(Response::new(frames))
    }

    async fn ack_message(
        &self,
        request: Request<v2::AckMessageRequest>,
    ) -> Result<Response<v2::AckMessageResponse>, tonic::Status> {
        let caller = Caller::of(&request);
        answer(&caller, ack::messages(self, &caller, request.into_inner())).await
    }

    async fn change_invisible_duration(
        &self,
        request: Request<v2::ChangeInvisibleDurationRequest>,
    ) -> Result<Response<v2::ChangeInvisibleDurationResponse>, tonic::Status> {
        let caller = Caller::of(&request);
        answer(
            &caller,
            ack::change_invisible(self, &caller, request.into_inner()),
        )
        .await
    }

    async fn forward_message_to_dead_letter_queue(
        &self,
        request: Request<v2::ForwardMessageToDeadLetterQueueRequest>,
    ) -> Result<Response<v2::ForwardMessageToDeadLetterQueueResponse>, tonic::Status> {
        let caller = Caller::of(&request);
        answer(&caller, ack::give_up(self, &caller, request.into_inner())).await
    }

    async fn end_transaction(
        &self,
        request: Request<v2::EndTransactionRequest>,
    ) -> Result<Response<v2::EndTransactionResponse>, tonic::Status> {
        not_offered(&request, "EndTransaction")
    }

    async fn recall_message(
        &self,
        request: Request<v2::RecallMessageRequest>,
    ) -> Result<Response<v2::RecallMessageResponse>, tonic::Status> {
        not_offered(&request, "RecallMessage")
    }

    async fn sync_lite_subscription(
        &self,
        request: Request<v2::SyncLiteSubscriptionRequest>,
    ) -> Result<Response<v2::SyncLiteSubscriptionResponse>, tonic::Status> {
        not_offered(&request, "SyncLiteSubscription")
    }

    async fn pull_message(
        &self,
        _: Request<v2::PullMessageRequest>,
    ) -> Result<Response<Self::PullMessageStream>, tonic::Status> {
        unknown("PullMessage")
    }

    async fn update_offset(
        &self,
        _: Request<v2::UpdateOffsetRequest>,
    ) -> Result<Response<v2::UpdateOffsetResponse>, tonic::Status> {
        unknown("UpdateOffset")
    }

    async fn get_offset(
        &self,
        _: Request<v2::GetOffsetRequest>,
    ) -> Result<Response<v2::GetOffsetResponse>, tonic::Status> {
        unknown("GetOffset")
    }

    async fn query_offset(
        &self,
        _: Request<v2::QueryOffsetRequest>,
    ) -> Result<Response<v2::QueryOffsetResponse>, tonic::Status> {
        unknown("QueryOffset")
    }
}
