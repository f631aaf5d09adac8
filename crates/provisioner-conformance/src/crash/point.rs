//! One moment of one call.

use std::collections::BTreeMap;
use std::fmt;

use crate::backend::Backend;
use crate::proxy::{Call, Gate, Verdict};
use crate::stage::Stage;

/// Which server is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Server {
    Kubernetes,
    Store,
}

/// When the operator is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// The server has not seen the call.
    Before,
    /// The server has done what was asked, and has not answered.
    After,
}

/// A moment of a call. Calls are identified by what they do to what, and counted: some run concurrently, so that their
/// position among all calls varies.
#[derive(Debug, Clone)]
pub(super) struct Point {
    server: Server,
    step: String,
    nth: usize,
    moment: Moment,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = match self.moment {
            Moment::Before => "before",
            Moment::After => "after",
        };
        write!(f, "killed {moment} call {} of {} ({:?})", self.nth, self.step, self.server)
    }
}

/// What a call does to what, without what differs between worlds.
pub(crate) fn step(call: &Call, id: &str) -> String {
    let path = call.target.split('?').next().unwrap_or_default();
    // The name can hold a part of the path.
    without_random(&without_uids(&format!("{} {path}", call.name).replace(id, "ID")))
}

/// Without ids that a store has made up, such as those of keys: 16 letters and digits or more, with a digit.
fn without_random(text: &str) -> String {
    const LENGTH: usize = 16;
    let is_random = |part: &str| part.len() >= LENGTH && part.contains(|c: char| c.is_ascii_digit());
    let mut parts = Vec::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let word = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        parts.push(if is_random(word) { part.replace(word, "RANDOM") } else { part.to_owned() });
    }
    parts.concat()
}

fn without_uids(text: &str) -> String {
    const LENGTH: usize = 36;
    let is_uid = |part: &str| {
        part.bytes().enumerate().all(|(i, byte)| match i {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let starts = 0..(text.len() + 1).saturating_sub(LENGTH);
    match starts.into_iter().find(|start| text.get(*start..start + LENGTH).is_some_and(is_uid)) {
        Some(start) => format!("{}UID{}", &text[..start], without_uids(&text[start + LENGTH..])),
        None => text.to_owned(),
    }
}

/// The points of all calls that went through the proxies of a stage and that change something.
///
/// What a process knows is lost with it: only what the servers have done counts. So a kill before a call leaves the same
/// world as the kill after the change that came before that call. This is why reads have no points (how often something
/// is read is often a matter of time, too: a point there might never come), and why, `at_once`, only the first change at
/// each server has a point before it. Where the store is slow, a later kill finds another store: there, all changes have
/// both.
pub(super) fn recorded<B: Backend>(stage: &Stage<B>, at_once: bool) -> Vec<Point> {
    let world = &stage.world;
    let of = |server, calls: Vec<Call>| {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut points = Vec::new();
        for call in calls.iter().filter(|call| call.mutates) {
            let step = step(call, &world.id);
            let nth = seen.entry(step.clone()).or_default();
            *nth += 1;
            if points.is_empty() || !at_once {
                points.push(Point { server, step: step.clone(), nth: *nth, moment: Moment::Before });
            }
            points.push(Point { server, step, nth: *nth, moment: Moment::After });
        }
        points
    };
    let mut points = of(Server::Kubernetes, world.kubernetes.calls());
    points.extend(of(Server::Store, stage.store.iter().flat_map(|store| store.calls()).collect()));
    points
}

impl Point {
    /// Whether the call is one to the store.
    pub(super) fn is_at_store(&self) -> bool {
        self.server == Server::Store
    }

    /// Whether it is a call on objects of this kind.
    pub(super) fn is_on(&self, plural: &str) -> bool {
        self.step.split(' ').nth(1) == Some(plural)
    }

    /// Whether it comes after the call; each call that changes something has one such point.
    pub(super) fn is_after(&self) -> bool {
        self.moment == Moment::After
    }

    /// Holds the call at a gate when it comes; the gate reports that it was reached.
    pub(super) fn arm<B: Backend>(&self, stage: &Stage<B>) -> Gate {
        let gate = Gate::closed();
        let (mut seen, held, point, id) = (0, gate.clone(), self.clone(), stage.world.id.clone());
        let rule = move |call: &Call| {
            seen += usize::from(step(call, &id) == point.step);
            match seen == point.nth && step(call, &id) == point.step {
                true if point.moment == Moment::Before => Verdict::Hold(held.clone()),
                true => Verdict::HoldAnswer(held.clone()),
                false => Verdict::Pass,
            }
        };
        match (self.server, &stage.store) {
            (Server::Store, Some(store)) => store.inject(rule),
            _ => stage.world.kubernetes.inject(rule),
        }
        gate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_call_is_one_step_in_all_worlds() {
        let call = |id: &str, uid: &str| {
            let target = format!("/buckets/t-{id}-photos-{uid}?tag=1");
            let name = format!("PUT {}", target.split('?').next().unwrap());
            step(&Call { name, target, mutates: true, answer_lost: false, note: None }, id)
        };
        let uids = ["47186c3b-319e-49cd-9b52-338b74fb85fd", "0ac8a9bd-5b0c-4f3e-8f43-0f6a4a0a1a2b"];
        assert_eq!(call("0123abcd", uids[0]), "PUT /buckets/t-ID-photos-UID /buckets/t-ID-photos-UID");
        assert_eq!(call("ffffffff", uids[1]), call("0123abcd", uids[0]));
        let key = "605ec6e2ef65f53df7f56c88a42fd001";
        assert_eq!(without_random(&format!("DELETE /keys/{key}/ /photos")), "DELETE /keys/RANDOM/ /photos");
    }
}
