//! What was asked with the same clients before. Classes that share credentials and endpoints do not ask it again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::caller::Caller;
use super::simulate::Answer;
use crate::aws::clients::Store;
use crate::provisioner::Finding;

/// What IAM answered to one simulation, by action.
pub(super) type Simulated = OnceCell<Vec<(String, Answer)>>;

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
    pub(super) fn with(&self, store: &Arc<Store>, uid: &str) -> Arc<Answers> {
        let mut examination = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
pub(super) struct Answers {
    /// `None` inside: nothing else needs to be asked.
    pub(super) caller: OnceCell<(Option<Caller>, Vec<Finding>)>,
    /// ARN of the user or role whose policies apply.
    pub(super) principal: OnceCell<String>,
    pub(super) users: OnceCell<Option<Finding>>,
    pub(super) buckets: OnceCell<Finding>,
    simulated: Mutex<HashMap<String, Arc<Simulated>>>,
}

impl Answers {
    /// The answer to a simulation, by all that it depends on.
    pub(super) fn simulated(&self, question: String) -> Arc<Simulated> {
        let mut simulated = self.simulated.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(simulated.entry(question).or_default())
    }
}
