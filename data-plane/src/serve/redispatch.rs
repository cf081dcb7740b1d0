//! The wait between two dispatches of a request.

use crate::handler::LocalBoxFuture;
use crate::serve::attempt::Progress;
use crate::serve::context::WorkerContext;
use crate::serve::step::Wait;

/// Waits, and returns the progress for the next dispatch. The result of the work is not needed: the next
/// dispatch finds the file in memory and the login in the ledger of logins.
pub(super) fn wait(
    wait: Wait,
    context: &WorkerContext,
    mut progress: Progress,
) -> LocalBoxFuture<Progress> {
    match wait {
        Wait::Load(load) => {
            let job = context.pool.run(move || load.run());
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
        Wait::Auth(question) => {
            // The question has a place among the calls of the client.
            let admitted = context.admit_call(question.peer);
            Box::pin(async move {
                progress.record_answer(match admitted {
                    Ok(memory) => question.ask(memory).await,
                    Err(reject) => question.refused(reject),
                });
                progress
            })
        }
        Wait::CatchUp(catch_up) => Box::pin(async move {
            catch_up.wait().await;
            progress.record_disk_wait();
            progress
        }),
    }
}
