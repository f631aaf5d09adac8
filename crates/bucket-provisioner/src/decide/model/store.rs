//! The verbs of the store, call by call, as the contract of [`Provisioner`](crate::store::Provisioner) demands
//! and the AWS backend implements them. Calls that the backend makes side by side are made in any order.
//!
//! Long, because the verbs of the model share the calls that they are made of.

use super::world::{Issued, Key, Record, Secret, User, Whose, World};

pub(super) const FOREIGN_BUCKET_DELETED: &str = "a bucket of somebody else was deleted";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Provision,
    Grant,
    Rotate,
    Check,
    Revoke,
    Delete,
    DeleteIfEmpty,
}

impl Kind {
    /// Whether the access is deleted.
    fn removes(self) -> bool {
        matches!(self, Self::Revoke | Self::Delete | Self::DeleteIfEmpty)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Call {
    CreateBucket,
    HeadBucket,
    CreateUser,
    /// Reads the tags of a user that exists.
    RecogniseUser,
    PutPolicy,
    ListKeys,
    DeleteKey,
    CreateKey,
    FindUser,
    DeletePolicy,
    DeleteUser,
    ReadTags,
    DeleteBucket,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    Done,
    /// Done, but a read of IAM misses what was just created.
    Blind,
    /// Another call is made first, because the verb makes both side by side.
    Ahead,
    /// Done, but its answer is lost.
    Lost,
    /// Not done.
    Refused,
}

/// A verb in progress.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Verb {
    pub(super) kind: Kind,
    /// What it is called with.
    record: Record,
    /// The keys to keep; for a removal, the one in the claim's Secret.
    kept: Vec<Key>,
    next: Call,
    /// What is made in parallel with the user and is not done yet: its bucket and its policy, or the removal of its
    /// bucket.
    in_parallel: Vec<Call>,
    /// The key that was issued before all of that was done.
    issued: Option<Key>,
    /// The policy was deleted before the keys.
    without_policy: bool,
    /// Keys to delete.
    listed: Vec<Key>,
    existing: bool,
    /// After a refusal, keys were already deleted once.
    cleared: bool,
    /// This verb may have created or removed something.
    pub(super) touched: bool,
    /// The user was not found.
    pub(super) missing: bool,
    /// The bucket is kept because it is not empty.
    pub(super) not_empty: bool,
}

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    GoesOn,
    Issued(Key),
    Done,
    KeysLost,
    Failed,
}

impl Verb {
    pub(super) fn new(kind: Kind, record: Record, kept: Vec<Key>) -> Self {
        let next = match kind {
            Kind::Provision => Call::CreateBucket,
            Kind::Grant | Kind::Check => Call::HeadBucket,
            Kind::Rotate => Call::ListKeys,
            Kind::Revoke | Kind::Delete | Kind::DeleteIfEmpty => Call::FindUser,
        };
        Self {
            kind,
            record,
            kept,
            next,
            in_parallel: match kind {
                Kind::Delete | Kind::DeleteIfEmpty => vec![Call::ReadTags],
                _ => Vec::new(),
            },
            issued: None,
            without_policy: false,
            listed: Vec::new(),
            existing: false,
            cleared: false,
            touched: false,
            missing: false,
            not_empty: false,
        }
    }

    /// Whether the next call is a read of IAM that may miss what was just created.
    pub(super) fn may_be_blind(&self) -> bool {
        matches!(self.next, Call::RecogniseUser | Call::FindUser | Call::ListKeys)
    }

    /// Whether another call may be made before the next one.
    pub(super) fn may_go_ahead(&self) -> bool {
        match self.kind {
            Kind::Provision | Kind::Grant => {
                self.issued.is_none() && matches!(self.next, Call::CreateBucket | Call::PutPolicy)
            }
            Kind::Rotate | Kind::Check => false,
            Kind::Revoke | Kind::Delete | Kind::DeleteIfEmpty => match self.next {
                Call::ListKeys | Call::DeleteKey => !self.without_policy,
                Call::DeleteUser => !self.in_parallel.is_empty(),
                _ => false,
            },
        }
    }

    /// Makes a call.
    pub(super) fn take(&mut self, world: &mut World, outcome: Outcome) -> Progress {
        match outcome {
            Outcome::Ahead => self.go_ahead(world),
            outcome => self.advance(world, outcome == Outcome::Blind),
        }
    }

    /// Makes another call before the next one, which is made later.
    fn go_ahead(&mut self, world: &mut World) -> Progress {
        match self.next {
            Call::CreateBucket => {
                self.in_parallel.push(Call::CreateBucket);
                self.next = Call::CreateUser;
                self.advance(world, false)
            }
            Call::PutPolicy => {
                self.in_parallel.push(Call::PutPolicy);
                self.next = self.first_call_on_keys();
                self.advance(world, false)
            }
            Call::ListKeys | Call::DeleteKey => {
                self.without_policy = true;
                self.touched = true;
                if let Some(user) = world.user(self.record.names) {
                    user.policy = false;
                }
                Progress::GoesOn
            }
            user => {
                let Some(call) = self.in_parallel.pop() else { return Progress::Failed };
                self.next = call;
                if self.call_on_bucket(world) == Progress::GoesOn {
                    self.in_parallel.push(self.next);
                } else {
                    self.touched |= call == Call::DeleteBucket;
                }
                self.next = user;
                Progress::GoesOn
            }
        }
    }

    fn first_call_on_keys(&self) -> Call {
        if self.existing { Call::ListKeys } else { Call::CreateKey }
    }

    /// What is left when the key was issued, or the user no longer exists.
    fn rest(&mut self) -> Progress {
        match (self.in_parallel.pop(), self.issued) {
            (Some(call), _) => {
                self.next = call;
                Progress::GoesOn
            }
            (None, Some(key)) => Progress::Issued(key),
            (None, None) => Progress::Done,
        }
    }

    /// Makes the next call.
    fn advance(&mut self, world: &mut World, blind: bool) -> Progress {
        let call = self.next;
        let progress = match call {
            Call::CreateBucket | Call::HeadBucket | Call::ReadTags | Call::DeleteBucket => self.call_on_bucket(world),
            Call::ListKeys | Call::DeleteKey | Call::CreateKey => self.call_on_keys(world, blind),
            Call::CreateUser | Call::RecogniseUser | Call::PutPolicy | Call::FindUser => {
                self.call_on_user(world, blind)
            }
            Call::DeletePolicy | Call::DeleteUser => self.call_to_remove_user(world),
        };
        let reads =
            matches!(call, Call::HeadBucket | Call::RecogniseUser | Call::ListKeys | Call::FindUser | Call::ReadTags);
        self.touched |= !reads && progress == Progress::GoesOn;
        progress
    }

    /// A call on the bucket.
    fn call_on_bucket(&mut self, world: &mut World) -> Progress {
        let (record, bucket) = (self.record, self.record.bucket());
        let uid = record.uid;
        match self.next {
            Call::CreateBucket => match world.bucket(bucket) {
                None => {
                    if world.bucket_taken_away {
                        world.harm = Some("a bucket that was lost was recreated, empty");
                    }
                    if world.restored == Some(uid) {
                        world.harm = Some("a restored claim was given a new and empty bucket");
                    }
                    world.put_bucket(bucket, Whose::Claim(uid));
                    return self.bucket_is_there();
                }
                Some(Whose::Claim(owner)) if record.names_uid(owner) => return self.bucket_is_there(),
                Some(_) => return Progress::Failed,
            },
            Call::HeadBucket => {
                match world.bucket(bucket) {
                    None => return Progress::Failed,
                    // Tags that name a previous claim are replaced.
                    Some(Whose::Claim(owner)) if owner != uid && record.names_uid(owner) => {
                        world.drop_bucket(bucket);
                        world.put_bucket(bucket, Whose::Claim(uid));
                    }
                    Some(_) => {}
                }
                self.next = if self.kind == Kind::Check { Call::FindUser } else { Call::CreateUser };
            }
            Call::ReadTags => match world.bucket(bucket) {
                Some(Whose::Claim(owner)) if record.names_uid(owner) => self.next = Call::DeleteBucket,
                // Left in place, or already deleted.
                _ => return Progress::Done,
            },
            Call::DeleteBucket => {
                if world.bucket(bucket) == Some(Whose::Foreign) {
                    world.harm = Some(FOREIGN_BUCKET_DELETED);
                }
                if world.full.contains(&bucket) {
                    if self.kind == Kind::DeleteIfEmpty {
                        self.not_empty = true;
                        return Progress::Done;
                    }
                    if !world.may_empty(&record) {
                        world.harm = Some("content was deleted that somebody may need");
                    }
                }
                world.drop_bucket(bucket);
                return Progress::Done;
            }
            _ => unreachable!("not such a call"),
        }
        Progress::GoesOn
    }

    /// A call that makes or finds the user.
    fn call_on_user(&mut self, world: &mut World, blind: bool) -> Progress {
        let record = self.record;
        let Record { uid, names: user_name, .. } = record;
        // If no user is found, the keys in the claim's Secret are tried.
        let still_works = self.kept.iter().any(|key| world.is_live(user_name, *key));
        match self.next {
            Call::CreateUser => match world.user(user_name) {
                Some(_) => {
                    self.existing = true;
                    self.next = Call::RecogniseUser;
                }
                missing => {
                    *missing = Some(User { tag: uid, seen: false, policy: false, limited: false, keys: Vec::new() });
                    self.next = Call::PutPolicy;
                }
            },
            Call::RecogniseUser => match world.user(user_name) {
                Some(user) if (user.seen || !blind) && record.names_uid(user.tag) => {
                    user.tag = uid;
                    self.next = Call::PutPolicy;
                }
                _ => return Progress::Failed,
            },
            Call::PutPolicy => match world.user(user_name) {
                Some(user) => {
                    (user.policy, user.limited) = (true, record.limited);
                    if self.issued.is_some() {
                        return self.rest();
                    }
                    self.next = self.first_call_on_keys();
                }
                None => return Progress::Failed,
            },
            Call::FindUser => match world.user(user_name) {
                Some(user) if user.seen || !blind => {
                    self.next = Call::ListKeys;
                    if self.kind == Kind::Check && record.names_uid(user.tag) {
                        user.tag = uid;
                        if !user.policy || user.limited != record.limited {
                            self.existing = true;
                            self.next = Call::PutPolicy;
                        }
                    }
                }
                _ if self.kind == Kind::Check => return Progress::KeysLost,
                _ if still_works => return Progress::Failed,
                _ => {
                    self.missing = true;
                    return self.access_is_gone();
                }
            },
            _ => unreachable!("not such a call"),
        }
        Progress::GoesOn
    }

    /// A call that removes the user.
    fn call_to_remove_user(&mut self, world: &mut World) -> Progress {
        let user_name = self.record.names;
        match self.next {
            Call::DeletePolicy => {
                if let Some(user) = world.user(user_name) {
                    user.policy = false;
                }
                self.next = Call::DeleteUser;
            }
            Call::DeleteUser => match world.user(user_name) {
                Some(user) if !user.keys.is_empty() && self.cleared => return Progress::Failed,
                Some(user) if !user.keys.is_empty() => {
                    self.cleared = true;
                    self.next = Call::ListKeys;
                }
                gone => {
                    *gone = None;
                    return self.access_is_gone();
                }
            },
            _ => unreachable!("not such a call"),
        }
        Progress::GoesOn
    }

    /// A call on the user's keys.
    fn call_on_keys(&mut self, world: &mut World, blind: bool) -> Progress {
        let user_name = self.record.names;
        match self.next {
            Call::ListKeys => {
                let user = world.user(user_name).as_ref();
                let keys: Vec<_> = user.map(|user| user.keys.clone()).unwrap_or_default();
                let shown = keys.into_iter().filter(|issued| issued.seen || !blind).map(|issued| issued.key);
                let shown: Vec<_> = shown.collect();
                if self.kind == Kind::Check && self.kept.first().is_none_or(|present| !shown.contains(present)) {
                    return Progress::KeysLost;
                }
                let kept = |key: &Key| self.kept.contains(key) && !self.kind.removes();
                self.listed = shown.into_iter().filter(|key| !kept(key)).collect();
                return self.after_keys();
            }
            Call::DeleteKey => {
                let key = self.listed.pop();
                let in_grace = matches!(world.secret, Some(Secret::Mine { retiring, .. }) if retiring.is_some() && retiring == key);
                if self.kind == Kind::Rotate && in_grace {
                    world.harm = Some("a previous key that apps may still use was deleted");
                }
                if let (Some(key), Some(user)) = (key, world.user(user_name)) {
                    user.keys.retain(|issued| issued.key != key);
                }
                self.touched = true;
                return self.after_keys();
            }
            Call::CreateKey => {
                let key = world.next_key;
                match world.user(user_name) {
                    // A user has at most two keys.
                    Some(user) if user.keys.len() >= 2 && !self.cleared => {
                        self.cleared = true;
                        self.next = Call::ListKeys;
                    }
                    Some(user) if user.keys.len() < 2 => {
                        user.keys.push(Issued { key, seen: false });
                        world.next_key += 1;
                        self.touched = true;
                        self.issued = Some(key);
                        return self.rest();
                    }
                    _ => return Progress::Failed,
                }
            }
            _ => unreachable!("not such a call"),
        }
        Progress::GoesOn
    }

    fn after_keys(&mut self) -> Progress {
        self.next = match self.kind {
            _ if !self.listed.is_empty() => Call::DeleteKey,
            Kind::Provision | Kind::Grant | Kind::Rotate => Call::CreateKey,
            Kind::Check => return Progress::Done,
            Kind::Revoke | Kind::Delete | Kind::DeleteIfEmpty => match self.without_policy {
                true => Call::DeleteUser,
                false => Call::DeletePolicy,
            },
        };
        Progress::GoesOn
    }

    fn access_is_gone(&mut self) -> Progress {
        self.rest()
    }

    fn bucket_is_there(&mut self) -> Progress {
        if self.issued.is_some() {
            return self.rest();
        }
        self.next = Call::CreateUser;
        Progress::GoesOn
    }
}
