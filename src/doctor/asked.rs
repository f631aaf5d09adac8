//! What was asked with the same clients before. Classes that share credentials and endpoints do not ask it again.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::OnceCell;

use super::caller::Caller;
use super::simulate::Answer;
use crate::client::store::Store;
use bucket_provisioner::store::Finding;

/// What IAM answered to one simulation, by action.
pub(crate) type Simulated = OnceCell<Vec<(String, Answer)>>;

/// The answers to all clients in one examination.
#[derive(Default)]
pub(crate) struct Asked(Mutex<Examination>);

#[derive(Default)]
struct Examination {
    /// UID of its imagined claims. Each examination has one of its own, and what an earlier one asked may have changed.
    uid: String,
    answers: Vec<(Arc<Store>, Arc<Answers>)>,
}

impl Asked {
    /// The answers to these clients.
    pub(crate) fn with(&self, store: &Arc<Store>, uid: &str) -> Arc<Answers> {
        let mut examination = self.0.lock();
        if examination.uid != uid {
            *examination = Examination { uid: uid.to_owned(), answers: Vec::new() };
        }
        if let Some((_, answers)) = examination.answers.iter().find(|(known, _)| Arc::ptr_eq(known, store)) {
            return Arc::clone(answers);
        }
        let answers = Arc::default();
        examination.answers.push((Arc::clone(store), Arc::clone(&answers)));
        answers
    }
}

/// The answers that do not depend on a class.
#[derive(Default)]
pub(crate) struct Answers {
    /// `None` inside: nothing else needs to be asked.
    pub(crate) caller: OnceCell<(Option<Caller>, Vec<Finding>)>,
    /// ARN of the user or role whose policies apply.
    pub(crate) principal: OnceCell<String>,
    pub(crate) users: OnceCell<Option<Finding>>,
    pub(crate) roles: OnceCell<Option<Finding>>,
    pub(crate) buckets: OnceCell<Finding>,
    simulated: Mutex<HashMap<String, Arc<Simulated>>>,
}

impl Answers {
    /// The answer to a simulation, by all that it depends on.
    pub(crate) fn simulated(&self, question: String) -> Arc<Simulated> {
        let mut simulated = self.simulated.lock();
        Arc::clone(simulated.entry(question).or_default())
    }
}
