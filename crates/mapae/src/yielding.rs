//! Yielding: letting what can run now run first, so that what belongs together is asked for together.

use std::future::poll_fn;
use std::task::Poll;

/// Returns once the tasks that can run now have had their turn. For batches without a timer: when nobody else has
/// anything to do, it costs a turn of the scheduler and no time.
///
/// `tokio::task::yield_now` will not do: it parks its task on the thread where it ran, and a handler that blocks
/// that thread would keep it there. This one waits in the queue, from which every thread takes.
pub(crate) async fn yield_to_others() {
    let mut taken = false;
    poll_fn(|context| {
        if taken {
            return Poll::Ready(());
        }
        taken = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
