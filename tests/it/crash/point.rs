//! One moment of one call.

use std::collections::BTreeMap;
use std::fmt;

use crate::support::World;
use crate::support::proxy::{Call, Gate, Verdict};

/// Which server is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Server {
    Kubernetes,
    Aws,
}

/// When the operator is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// The server has not seen the call.
    Before,
    /// The server has done what was asked, and has not answered.
    After,
}

/// A moment of a call. Calls are told apart by what they do to what, and counted: some run concurrently, so
/// that their place among all calls says nothing.
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
fn step(call: &Call, id: &str) -> String {
    let path = call.target.split('?').next().unwrap_or_default();
    format!("{} {}", call.name, without_uids(&path.replace(id, "ID")))
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

/// The points of all calls that went through the proxies of a world and that change something.
///
/// What a process knows dies with it: only what the servers have done counts. So a kill before a call leaves the same
/// world as the kill after the change that came before that call. This is why reads have no points (how often something
/// is read is often a matter of time, too: a point there might never come), and why, `at_once`, only the first change at
/// each server has a point before it. Where AWS takes its time, a later kill finds another AWS: there, all changes have
/// both.
pub(super) fn recorded(world: &World, at_once: bool) -> Vec<Point> {
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
    points.extend(of(Server::Aws, world.aws.calls()));
    points
}

impl Point {
    /// Whether the call is one to the store.
    pub(super) fn is_at_store(&self) -> bool {
        self.server == Server::Aws
    }

    /// Whether it comes after the call; each call that changes something has one such point.
    pub(super) fn is_after(&self) -> bool {
        self.moment == Moment::After
    }

    /// Has the call stand still when it comes; the gate says that it came.
    pub(super) fn arm(&self, world: &World) -> Gate {
        let gate = Gate::closed();
        let (mut seen, held, point, id) = (0, gate.clone(), self.clone(), world.id.clone());
        let rule = move |call: &Call| {
            seen += usize::from(step(call, &id) == point.step);
            match seen == point.nth && step(call, &id) == point.step {
                true if point.moment == Moment::Before => Verdict::Hold(held.clone()),
                true => Verdict::HoldAnswer(held.clone()),
                false => Verdict::Pass,
            }
        };
        match self.server {
            Server::Kubernetes => world.kubernetes.meddle(rule),
            Server::Aws => world.aws.meddle(rule),
        }
        gate
    }
}
