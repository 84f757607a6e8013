//! Notices of opened interrupts, for people who do not look at the list. The process that opens an interrupt sends its notice, again and
//! again until the receiver has it or the interrupt is answered. A process that starts sends the notices of everything that is open, because
//! nothing says which of them were sent before: a receiver may get a notice more than once.

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use windlass_kernel::Tenant;
use windlass_ports::{InterruptScan, InterruptView, Notice, Notifier, StoreError};

use crate::engine::Inner;

/// Notices that are being sent at once.
const SENDING_MAX: usize = 8;
/// Notices that are being sent or wait for their next attempt. Further ones are left out: the list has them.
const WAITING_MAX: usize = 4_096;
/// Attempts at one notice.
const ATTEMPTS_MAX: u32 = 12;
/// The pause after the first attempt. It doubles with each one.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Interrupts that are read at once at the start.
const PAGE: usize = 200;

/// Where notices go, and whose open interrupts are announced at the start.
pub struct Notifications {
    /// Delivers the notices.
    pub notifier: Arc<dyn Notifier>,
    /// The tenants of the configuration.
    pub tenants: Vec<Tenant>,
}

/// The notices that are on their way.
pub(crate) struct Notices {
    notifier: Arc<dyn Notifier>,
    sending: Semaphore,
    waiting: Arc<Semaphore>,
}

impl Notices {
    pub fn new(notifier: Arc<dyn Notifier>) -> Self {
        Notices { notifier, sending: Semaphore::new(SENDING_MAX), waiting: Arc::new(Semaphore::new(WAITING_MAX)) }
    }
}

impl Inner {
    /// Sends a notice in a task of its own, if notices are configured.
    pub fn notify_people(self: &Arc<Self>, notice: Notice) {
        let Some(notices) = &self.notices else { return };
        let Ok(place) = notices.waiting.clone().try_acquire_owned() else {
            tracing::warn!(interrupt = %notice.interrupt, "too many notices wait to be sent; this one is left out");
            return;
        };
        let inner = self.clone();
        self.tasks.spawn(async move {
            deliver(&inner, &notice).await;
            drop(place);
        });
    }
}

/// Sends the notices of all interrupts that are open, oldest first.
pub(crate) async fn announce_open(inner: Arc<Inner>, tenants: Vec<Tenant>) {
    for tenant in tenants {
        let mut scan = InterruptScan { limit: PAGE, ..InterruptScan::default() };
        loop {
            let page = match inner.views.interrupts(&tenant, &scan).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(%tenant, %error, "the open interrupts could not be read; their notices are not sent again");
                    break;
                }
            };
            for view in &page {
                match notice_of(&inner, &tenant, view).await {
                    Ok(notice) => inner.notify_people(notice),
                    Err(error) => tracing::warn!(interrupt = %view.id(), %error, "the notice of an interrupt could not be made"),
                }
            }
            match page.last().filter(|_| page.len() == PAGE) {
                Some(last) => scan.after = Some((last.created_at, last.id())),
                None => break,
            }
        }
    }
}

async fn notice_of(inner: &Inner, tenant: &Tenant, view: &InterruptView) -> Result<Notice, StoreError> {
    let tool = match view.interrupt.call {
        Some(call) => {
            let rows = inner.views.calls(tenant, view.run, call, 1).await?;
            rows.into_iter().find(|row| row.call == call).map(|row| row.tool)
        }
        None => None,
    };
    Ok(Notice {
        tenant: tenant.clone(),
        interrupt: view.id(),
        agent: view.agent_name.clone().unwrap_or_else(|| view.agent.agent.clone()),
        cause: view.interrupt.cause,
        tool,
        at: view.created_at,
    })
}

async fn deliver(inner: &Inner, notice: &Notice) {
    let Some(notices) = &inner.notices else { return };
    let mut pause = PAUSE;
    for attempt in 1..=ATTEMPTS_MAX {
        let Ok(permit) = notices.sending.acquire().await else { return };
        let sent = notices.notifier.notify(notice).await;
        drop(permit);
        let Err(error) = sent else { return };
        if attempt == 1 || attempt == ATTEMPTS_MAX {
            let gives_up = attempt == ATTEMPTS_MAX;
            tracing::warn!(interrupt = %notice.interrupt, attempt, gives_up, %error, "the notice of an interrupt was not taken");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
        // An interrupt that was answered meanwhile needs no notice. If that cannot be read, one too many is harmless.
        let view = inner.views.interrupt(&notice.tenant, notice.interrupt).await;
        if matches!(view, Ok(Some(InterruptView { closed: Some(_), .. })) | Ok(None)) {
            return;
        }
    }
}
