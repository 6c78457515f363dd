//! What must hold of the types, whoever uses them.

use kv_restore::{
    Admission, Dumper, Limiter, Offer, RestoreError, Restorer, Session, Target,
    machine::{Receiver, Sender},
    registry::{Completer, Registry},
    transport::{Channel, LocalTransport},
};

fn is_send<T: Send>() {}

fn is_shared<T: Send + Sync + 'static>() {}

#[test]
fn what_is_public_can_be_held_and_moved_by_any_task() {
    is_shared::<Restorer>();
    is_shared::<Dumper>();
    is_shared::<Session>();
    is_shared::<Offer>();
    is_shared::<Target>();
    is_shared::<Limiter>();
    is_shared::<Admission>();
    is_shared::<LocalTransport>();
    is_shared::<RestoreError>();
    is_shared::<Registry>();
    is_send::<Completer>();
    is_send::<Receiver>();
    is_send::<Sender>();
    is_send::<Channel>();
    fn outcome(session: &Session) -> impl Send {
        session.outcome()
    }
    let _ = outcome;
}
