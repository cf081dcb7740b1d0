//! The wait between two dispatches of a request.

use crate::handler::LocalBoxFuture;
use crate::serve::attempt::Progress;
use crate::serve::step::Wait;
use base::thread_pool::ThreadPool;

/// Waits, and returns the progress for the next dispatch. The result of the work is not needed: the next
/// dispatch finds the file in memory and the login in the ledger of logins.
pub(super) fn wait(
    wait: Wait,
    pool: &ThreadPool,
    mut progress: Progress,
) -> LocalBoxFuture<Progress> {
    match wait {
        Wait::Load(load) => {
            let job = pool.run(move || load.run());
            Box::pin(async move {
                let _ = job.await;
                progress.record_load();
                progress
            })
        }
        Wait::Login(login) => Box::pin(async move {
            progress.record_login(login.answer().await.is_err());
            progress
        }),
        Wait::CatchUp(catch_up) => Box::pin(async move {
            catch_up.wait().await;
            progress.record_disk_wait();
            progress
        }),
    }
}
