//! The calls of one operator to Kubernetes and to its store. A rule decides what becomes of each, so that it fails where a
//! test wants it to fail.

use std::collections::BTreeSet;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// How long each call takes. Others act meanwhile.
const LATENCY: Duration = Duration::from_millis(1);
const LATE: Duration = Duration::from_secs(60);
/// Less than the operator waits for an answer.
const LATE_ANSWER: Duration = Duration::from_secs(10);

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    /// It is not done, and answered with this HTTP status.
    Answer(u16),
    /// It is done after a minute.
    Late,
    /// It is done, and answered after ten seconds.
    LateAnswer,
    /// It is done, and its answer is lost.
    LoseAnswer,
    /// It is not done, and never answered.
    Hang,
    /// It panics. Only for calls to the store.
    Panic,
    /// The operator is stopped before it is done.
    StopBefore,
    /// The operator is stopped when it is done.
    StopAfter,
}

/// The version of a watch or of a further page of a list is too old.
pub const EXPIRED: Verdict = Verdict::Answer(410);

/// Why a call has no answer of the server.
#[derive(Debug, Clone, Copy)]
pub enum Failed {
    Status(u16),
    Lost,
}

/// One of the calls of a flow: the nth of its name, from 0. Which call comes first may differ between runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nth {
    pub name: String,
    pub nth: usize,
}

impl Nth {
    pub fn is_event(&self) -> bool {
        self.name == "create events"
    }

    pub fn changes_something(&self) -> bool {
        let reads = ["get ", "list ", "watch ", "try ", "store probe"];
        !reads.iter().any(|read| self.name.starts_with(read))
    }
}

impl fmt::Display for Nth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.name, self.nth)
    }
}

type Rule = Box<dyn FnMut(&str) -> Verdict + Send>;

/// The calls of one operator.
#[derive(Clone)]
pub struct Calls(Arc<Inner>);

struct Inner {
    made: Mutex<Vec<String>>,
    rule: Mutex<Rule>,
    stopped: watch::Sender<bool>,
}

impl Default for Calls {
    fn default() -> Self {
        let rule: Rule = Box::new(|_| Verdict::Pass);
        Self(Arc::new(Inner { made: Mutex::default(), rule: Mutex::new(rule), stopped: watch::Sender::new(false) }))
    }
}

impl Calls {
    /// From now on, calls are counted and this rule decides.
    pub fn begin(&self, rule: impl FnMut(&str) -> Verdict + Send + 'static) {
        self.0.made.lock().clear();
        *self.0.rule.lock() = Box::new(rule);
    }

    /// The calls since the beginning.
    pub fn all(&self) -> Vec<Nth> {
        let names = self.0.made.lock();
        let nth = |(at, name): (usize, &String)| names.iter().take(at).filter(|earlier| *earlier == name).count();
        names.iter().enumerate().map(|call| Nth { name: call.1.clone(), nth: nth(call) }).collect()
    }

    /// Waits until a verdict has stopped the operator.
    pub async fn stopped(&self) {
        let _ = self.0.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// Makes a call as the rule decides.
    ///
    /// # Errors
    /// The rule has it fail.
    pub async fn make<T>(&self, name: String, effect: impl FnOnce() -> T) -> Result<T, Failed> {
        tokio::time::sleep(LATENCY).await;
        // A process that no longer exists makes no calls.
        if *self.0.stopped.borrow() {
            return pending().await;
        }
        let verdict = (self.0.rule.lock())(&name);
        self.0.made.lock().push(name);
        match verdict {
            Verdict::Pass => Ok(effect()),
            Verdict::Late => {
                tokio::time::sleep(LATE).await;
                Ok(effect())
            }
            Verdict::LateAnswer => {
                let answer = effect();
                tokio::time::sleep(LATE_ANSWER).await;
                Ok(answer)
            }
            Verdict::Answer(status) => Err(Failed::Status(status)),
            Verdict::LoseAnswer => {
                effect();
                Err(Failed::Lost)
            }
            Verdict::Hang => pending().await,
            // Without the message that a panic prints.
            Verdict::Panic => std::panic::resume_unwind(Box::new("a mistake in the verb")),
            Verdict::StopBefore => self.stop().await,
            Verdict::StopAfter => {
                effect();
                self.stop().await
            }
        }
    }

    async fn stop<T>(&self) -> T {
        self.0.stopped.send_replace(true);
        pending().await
    }
}

/// The rule that gives each of these calls its verdict, and lets all others pass. A watch whose version is too old stays so
/// until its kind is listed again.
pub fn at(failing: Vec<(Nth, Verdict)>) -> impl FnMut(&str) -> Verdict + Send + 'static {
    let mut failing: Vec<_> = failing.into_iter().map(|(call, verdict)| (call, verdict, 0)).collect();
    let mut expired = BTreeSet::new();
    move |name| {
        let mut verdict = Verdict::Pass;
        for (call, then, seen) in failing.iter_mut().filter(|(call, ..)| call.name == name) {
            if *seen == call.nth {
                verdict = *then;
            }
            *seen += 1;
        }
        match name.split_once(' ') {
            Some(("list", kind)) => {
                expired.remove(kind);
            }
            Some(("watch", kind)) if verdict == EXPIRED || expired.contains(kind) => {
                expired.insert(kind.to_owned());
                verdict = EXPIRED;
            }
            _ => {}
        }
        verdict
    }
}
