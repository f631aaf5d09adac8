//! The identity of the provisioning credentials, and how far the clock here is from the store's.

use std::time::Duration;

use crate::client::account::account_of;
use crate::client::call::{Operation, Resource};
use crate::client::store::Store;
use crate::client::sts;
use bucket_provisioner::store::Finding;

/// From here on IAM and STS refuse signatures ("Signature Version 4", AWS General Reference). S3 allows 15 minutes.
const REFUSED: Duration = Duration::from_secs(5 * 60);
const SUSPICIOUS: Duration = Duration::from_secs(60);

/// Who signs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller {
    /// `None`: the store does not return it.
    arn: Option<String>,
}

/// Whose policies apply to a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Principal {
    /// This user or role. The path of a role is not known: the ARN of a session leaves it out.
    Arn(String),
    /// The account itself, which has every permission.
    Root,
    /// A session that has no ARN of its own in IAM.
    Session,
    Unknown,
}

impl Caller {
    /// Stores that keep no ARN give one that is empty.
    fn with(arn: Option<String>) -> Self {
        Self { arn: arn.filter(|arn| !arn.is_empty()) }
    }

    pub(crate) fn arn(&self) -> Option<&str> {
        self.arn.as_deref()
    }

    pub(crate) fn account(&self) -> Option<&str> {
        self.arn().and_then(account_of)
    }

    /// The second field of the ARN.
    pub(crate) fn partition(&self) -> Option<&str> {
        self.arn()?.split(':').nth(1).filter(|partition| !partition.is_empty())
    }

    /// Whose policies apply: those of a role, if the caller is a session of it ("SimulatePrincipalPolicy", IAM API
    /// reference).
    pub(crate) fn principal(&self) -> Principal {
        let Some(arn) = self.arn() else { return Principal::Unknown };
        let fields: Vec<&str> = arn.splitn(6, ':').collect();
        let ["arn", partition, _, _, account, resource] = fields[..] else { return Principal::Unknown };
        match resource.split_once('/') {
            Some(("user", _)) => Principal::Arn(arn.to_owned()),
            Some(("assumed-role", session)) => {
                let role = session.split('/').next().unwrap_or_default();
                Principal::Arn(format!("arn:{partition}:iam::{account}:role/{role}"))
            }
            Some(_) => Principal::Session,
            None if resource == "root" => Principal::Root,
            None => Principal::Unknown,
        }
    }
}

/// Asks for the identity of the provisioning credentials; the answer also has the store's time. `None`: the store
/// refuses the credentials or does not answer, so that there is nothing else to ask.
pub(crate) async fn ask(store: &Store, has_iam: bool) -> (Option<Caller>, Vec<Finding>) {
    let clock = &store.account.clock;
    let caller = match &store.sts {
        // Whoever wanted to know the account has asked.
        Some(_) if store.account.was_refused() => None,
        Some(sts) => match sts::identity(store, sts).await {
            Ok(identity) => Some(Caller::with(identity.arn.clone())),
            Err(error) if sts::is_over(store, &error) => None,
            Err(_) => Some(Caller::default()),
        },
        None => Some(Caller::default()),
    };
    let caller = match caller {
        // A store without STS may give the ARN of the user whose credentials these are.
        Some(Caller { arn: None }) if has_iam => {
            let sent = store.iam.get_user().customize().interceptor(clock.clone()).send();
            match store.call_once(Operation::GetUser, Resource::Account, sent).await {
                Ok(answer) => Some(Caller::with(answer.user.map(|user| user.arn))),
                Err(error) if error.status() == 0 => None,
                Err(_) => Some(Caller::default()),
            }
        }
        caller => caller,
    };
    let findings = caller.as_ref().and_then(identity).into_iter().chain(clock.ahead().map(skew)).collect();
    (caller, findings)
}

fn identity(caller: &Caller) -> Option<Finding> {
    const WHAT: &str = "identity";
    let arn = caller.arn()?;
    Some(match caller.principal() {
        Principal::Root => Finding::about(WHAT).warning(format!("the provisioning credentials belong to {arn}: they can do everything in the account, and no policy limits them")).with_remedy("create an IAM user or role with the provisioning policy (docs/permissions.md), and put its keys into the Secret"),
        _ => Finding::about(WHAT).good(format!("the provisioning credentials belong to {arn}")),
    })
}

/// The store's time has whole seconds, and its answer took a moment.
fn skew(ahead: f64) -> Finding {
    const WHAT: &str = "clock";
    const REMEDY: &str = "synchronise the clock of this machine (NTP, chrony); to see the clock of the operator's node, run this in the operator's pod";
    let apart = ahead.abs();
    let which = if ahead > 0.0 { "ahead of" } else { "behind" };
    let message = format!("the clock here is {apart:.0} s {which} the store's");
    if apart >= REFUSED.as_secs_f64() {
        Finding::about(WHAT)
            .bad(format!("{message}: AWS refuses signatures that are 5 minutes off"))
            .with_remedy(REMEDY)
    } else if apart >= SUSPICIOUS.as_secs_f64() {
        Finding::about(WHAT)
            .warning(format!("{message}: AWS refuses signatures that are 5 minutes off"))
            .with_remedy(REMEDY)
    } else {
        Finding::about(WHAT).good("the clock here agrees with the store's")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bucket_provisioner::store::Verdict;

    fn principal(arn: &str) -> Principal {
        Caller { arn: Some(arn.to_owned()) }.principal()
    }

    #[test]
    fn a_session_has_the_policies_of_its_role() {
        let user = "arn:aws:iam::123456789012:user/ops/buckets";
        assert_eq!(principal(user), Principal::Arn(user.to_owned()));
        assert_eq!(
            principal("arn:aws-cn:sts::123456789012:assumed-role/buckets/i-0a1b"),
            Principal::Arn("arn:aws-cn:iam::123456789012:role/buckets".to_owned())
        );
        assert_eq!(principal("arn:aws:iam::123456789012:root"), Principal::Root);
        assert_eq!(principal("arn:aws:sts::123456789012:federated-user/x"), Principal::Session);
        assert_eq!(principal("somebody"), Principal::Unknown);
    }

    #[test]
    fn a_clock_five_minutes_ahead_or_behind_is_bad() {
        for (ahead, verdict) in [
            (0.9, Verdict::Good),
            (-59.0, Verdict::Good),
            (61.0, Verdict::Warning),
            (-299.0, Verdict::Warning),
            (300.0, Verdict::Bad),
            (-900.0, Verdict::Bad),
        ] {
            assert_eq!(skew(ahead).verdict, verdict, "{ahead}");
        }
        assert!(skew(-900.0).message.contains("900 s behind"));
        assert!(skew(61.0).message.contains("61 s ahead of"));
    }
}
