//! Simulates in IAM whether the provisioning credentials have the permissions, which changes nothing
//! ("SimulatePrincipalPolicy", IAM API reference). Policies of buckets are not simulated.

use std::collections::BTreeSet;

use aws_sdk_iam::types::{ContextEntry, ContextKeyTypeEnum, EvaluationResult, PolicyEvaluationDecisionType};
use futures::future::try_join_all;

use super::Examined;
use super::caller::Principal;
use super::needs::{self, Scope};
use crate::client::call::{CallError, Operation, Resource};
use bucket_provisioner::store::{Finding, Mode};

pub(crate) const WHAT: &str = "permissions";
const BOUNDARY_KEY: &str = "iam:PermissionsBoundary";
/// Where the policies are that allow everything.
const POLICY: &str = "the provisioning policy in docs/permissions.md allows all that claims need";

/// Why nothing could be simulated, as the beginning of a message; and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotSimulated {
    pub(crate) why: String,
    pub(crate) remedy: String,
}

/// What IAM answers about one action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Allowed,
    /// Denied, because nothing allows it or something denies it. What denies, if it is not just that no identity-based
    /// policy allows it.
    Denied(Option<Denier>),
    /// Not allowed, but a condition needs what only a real request has.
    Depends(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denier {
    Organization,
    OwnersBoundary,
    Statement,
}

/// Whether the provisioning credentials have every permission that claims of the class need.
///
/// # Errors
/// IAM cannot be asked.
pub(crate) async fn permissions(examined: &Examined<'_>) -> Result<Vec<Finding>, NotSimulated> {
    let Examined { store, asked, caller, target, has_iam } = examined;
    let partition = caller.partition().unwrap_or("aws");
    let needs = needs::of(target);
    let principal = match caller.principal() {
        Principal::Arn(arn) if *has_iam => arn,
        Principal::Root => {
            return Ok(vec![
                Finding::about(WHAT)
                    .good("the provisioning credentials belong to the root user, which no IAM policy limits"),
            ]);
        }
        Principal::Session => {
            return Err(NotSimulated {
                why: "IAM does not simulate sessions of this kind".to_owned(),
                remedy: "use credentials of an IAM user or role, or submit a claim to see whether it works".to_owned(),
            });
        }
        Principal::Arn(_) | Principal::Unknown => return Err(unsupported()),
    };
    let principal = asked.principal.get_or_init(|| with_path(store, principal)).await.clone();
    let boundary = target.iam_identity().and_then(|identity| identity.permissions_boundary);
    let answers = needs.iter().map(|(scope, actions)| async {
        let arn = scope.arn(target, partition, caller.account().unwrap_or_default());
        let boundary = boundary.filter(|_| *scope == Scope::Giving);
        let results = ask(examined, &principal, actions, &arn, boundary).await?;
        Ok::<_, CallError>((*scope, results))
    });
    let answers = match try_join_all(answers).await {
        Ok(answers) => answers,
        Err(error) => return Err(not_simulated(&error)),
    };
    let mut findings = Vec::new();
    let mut allowed = BTreeSet::new();
    for (scope, results) in &answers {
        let on = scope.in_policy(target, partition);
        allowed.extend(results.iter().filter(|(_, answer)| *answer == Answer::Allowed).map(|(action, _)| action));
        findings.extend(denied(results, &on, *scope, boundary.is_some()));
        findings.extend(undecided(results, &on));
    }
    if findings.is_empty() {
        let number = needs::actions(&needs).len();
        let message = format!("IAM allows the provisioning credentials all {number} actions that claims need");
        findings.push(Finding::about(WHAT).good(message));
    }
    if target.record.plan.mode == Mode::Created
        && let Some(finding) = is_limited_to_names(examined, &principal, partition).await
    {
        findings.push(finding);
    }
    if boundary.is_some()
        && let Some(finding) = demands_boundary(examined, &principal, partition).await
    {
        findings.push(finding);
    }
    Ok(findings)
}

fn unsupported() -> NotSimulated {
    NotSimulated {
        why: "this store has no policies that could be simulated".to_owned(),
        remedy: "submit a claim to see whether it works".to_owned(),
    }
}

fn not_simulated(error: &CallError) -> NotSimulated {
    if error.code() == "AccessDenied" || error.code() == "AccessDeniedException" {
        let why = "the provisioning credentials may not call iam:SimulatePrincipalPolicy".to_owned();
        return NotSimulated { why, remedy: super::allow_doctor("iam:SimulatePrincipalPolicy") };
    }
    match error.status() {
        // Other stores have many error codes for unknown operations.
        400..=405 | 501 => unsupported(),
        status => NotSimulated {
            why: format!("iam:SimulatePrincipalPolicy failed ({} {})", status, error.code()),
            remedy: "run this again".to_owned(),
        },
    }
}

/// The ARN of a role with its path, if GetRole is allowed. Without the path IAM does not find the role.
async fn with_path(store: &crate::client::store::Store, principal: String) -> String {
    let Some((_, role)) = principal.split_once(":role/") else { return principal };
    let send = || store.iam.get_role().role_name(role).send();
    let found = store.call(Operation::GetRole, Resource::Account, send).await.ok().and_then(|answer| answer.role);
    found.map_or(principal.clone(), |role| role.arn)
}

/// Simulates actions on one resource, once for all classes for which that is the same.
async fn ask(
    examined: &Examined<'_>,
    principal: &str,
    actions: &BTreeSet<&'static str>,
    arn: &str,
    boundary: Option<&str>,
) -> Result<Vec<(String, Answer)>, CallError> {
    let cell = examined.asked.simulated(format!("{principal} {actions:?} {arn} {boundary:?}"));
    cell.get_or_try_init(|| simulate(examined, principal, actions, arn, boundary)).await.cloned()
}

async fn simulate(
    Examined { store, target, caller, .. }: &Examined<'_>,
    principal: &str,
    actions: &BTreeSet<&'static str>,
    arn: &str,
    boundary: Option<&str>,
) -> Result<Vec<(String, Answer)>, CallError> {
    // What a request of the operator has. Conditions on anything else remain open.
    let account = caller.account();
    let known = [
        ("aws:RequestedRegion", Some(target.endpoints.region.as_str())),
        ("aws:PrincipalAccount", account),
        ("aws:ResourceAccount", account),
        ("iam:PassedToService", target.association.as_ref().map(|_| "pods.eks.amazonaws.com")),
        (BOUNDARY_KEY, boundary),
    ];
    let context = known.iter().filter_map(|(key, value)| Some(entry(key, (*value)?))).collect::<Vec<_>>();
    let list = || {
        let asked = store.iam.simulate_principal_policy().policy_source_arn(principal).resource_arns(arn);
        let asked = asked.set_action_names(Some(actions.iter().map(|action| (*action).to_owned()).collect()));
        asked.set_context_entries(Some(context.clone())).into_paginator().items().send().collect::<Result<Vec<_>, _>>()
    };
    let results = store.call(Operation::SimulatePrincipalPolicy, Resource::Account, list).await?;
    let answered =
        results.iter().map(|result| (result.eval_action_name().to_owned(), read(result))).collect::<Vec<_>>();
    // An answer that leaves actions out proves nothing about them.
    if actions.iter().all(|action| answered.iter().any(|(answered, _)| answered.eq_ignore_ascii_case(action))) {
        return Ok(answered);
    }
    Err(store.unreadable(Operation::SimulatePrincipalPolicy, Resource::Account))
}

fn entry(key: &str, value: &str) -> ContextEntry {
    let entry = ContextEntry::builder().context_key_name(key).context_key_values(value);
    entry.context_key_type(ContextKeyTypeEnum::String).build()
}

fn read(result: &EvaluationResult) -> Answer {
    match result.eval_decision() {
        PolicyEvaluationDecisionType::Allowed => Answer::Allowed,
        _ if result.organizations_decision_detail().is_some_and(|it| !it.allowed_by_organizations()) => {
            Answer::Denied(Some(Denier::Organization))
        }
        _ if result.permissions_boundary_decision_detail().is_some_and(|it| !it.allowed_by_permissions_boundary()) => {
            Answer::Denied(Some(Denier::OwnersBoundary))
        }
        PolicyEvaluationDecisionType::ExplicitDeny => Answer::Denied(Some(Denier::Statement)),
        _ if !open_keys(result).is_empty() => Answer::Depends(open_keys(result)),
        _ => Answer::Denied(None),
    }
}

/// The condition keys that the simulation would have needed. The boundary is not among them: a class without one sends
/// none.
fn open_keys(result: &EvaluationResult) -> Vec<String> {
    // Where a resource is named, IAM names them beside it (EvaluationResult, IAM API reference).
    let of_resources = result.resource_specific_results().iter().flat_map(|one| one.missing_context_values());
    let keys = result.missing_context_values().iter().chain(of_resources);
    keys.filter(|key| !key.eq_ignore_ascii_case(BOUNDARY_KEY)).cloned().collect()
}

fn denied(results: &[(String, Answer)], on: &str, scope: Scope, has_boundary: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for denier in [None, Some(Denier::Statement), Some(Denier::OwnersBoundary), Some(Denier::Organization)] {
        let actions: Vec<_> = results.iter().filter(|(_, answer)| *answer == Answer::Denied(denier)).collect();
        if actions.is_empty() {
            continue;
        }
        let names = actions.iter().map(|(action, _)| action.as_str()).collect::<Vec<_>>().join(", ");
        let (who, remedy) = match denier {
            None if scope == Scope::Giving && !has_boundary => (
                "no policy allows the provisioning credentials",
                format!(
                    "allow the actions on {on}; {POLICY}. If that policy requires a permissions boundary, set permissionsBoundary in the class"
                ),
            ),
            None => ("no policy allows the provisioning credentials", format!("allow the actions on {on}; {POLICY}")),
            Some(Denier::Statement) => (
                "an explicit Deny statement denies the provisioning credentials",
                "change that statement, or detach its policy from the IAM user or role".to_owned(),
            ),
            Some(Denier::OwnersBoundary) => (
                "the permissions boundary of the provisioning credentials does not allow",
                format!("allow the actions on {on} in that permissions boundary, too"),
            ),
            Some(Denier::Organization) => (
                "a policy of the AWS organization denies the provisioning credentials",
                "ask the administrators of the organization to allow the actions".to_owned(),
            ),
        };
        findings.push(Finding::about(WHAT).bad(format!("{who} {names} on {on}")).with_remedy(remedy));
    }
    findings
}

fn undecided(results: &[(String, Answer)], on: &str) -> Option<Finding> {
    let (mut actions, mut keys) = (Vec::new(), BTreeSet::new());
    for (action, answer) in results {
        if let Answer::Depends(on) = answer {
            actions.push(action.as_str());
            keys.extend(on.iter().map(String::as_str));
        }
    }
    let keys = keys.into_iter().collect::<Vec<_>>().join(", ");
    (!actions.is_empty()).then(|| {
        let message = format!("whether IAM allows {} on {on} depends on the condition keys {keys}", actions.join(", "));
        Finding::about(WHAT).unknown(message).with_remedy("submit a claim to see whether it works")
    })
}

/// Whoever has the credentials should not be able to delete buckets that are nobody's claim.
async fn is_limited_to_names(examined: &Examined<'_>, principal: &str, partition: &str) -> Option<Finding> {
    const WHAT: &str = "buckets of others";
    // No prefix of a class fits a name that nothing but the uid of this examination is in.
    let arn = format!("arn:{partition}:s3:::{}", examined.target.record.claim.uid);
    let results = ask(examined, principal, &BTreeSet::from(["s3:DeleteBucket"]), &arn, None).await.ok()?;
    let (_, answer) = results.first()?;
    Some(match answer {
        Answer::Allowed => Finding::about(WHAT).warning("the provisioning credentials may delete every bucket of the account, so whoever has them can delete what no claim has created").with_remedy("set bucketNamePrefix in the class, and limit the provisioning policy to that prefix, as docs/owner-iam-policy-with-boundary.json does"),
        Answer::Denied(_) => Finding::about(WHAT).good("the provisioning credentials cannot delete buckets of other names"),
        Answer::Depends(keys) => Finding::about(WHAT).unknown(format!(
            "whether the provisioning credentials may delete buckets of other names depends on the condition keys {}",
            keys.join(", ")
        )),
    })
}

/// A boundary protects only if the provisioning credentials cannot create users without it.
async fn demands_boundary(examined: &Examined<'_>, principal: &str, partition: &str) -> Option<Finding> {
    const WHAT: &str = "boundary demanded";
    let Examined { target, caller, .. } = examined;
    let arn = Scope::Giving.arn(target, partition, caller.account().unwrap_or_default());
    let results = ask(examined, principal, &BTreeSet::from(["iam:CreateUser"]), &arn, None).await.ok()?;
    let (_, answer) = results.first()?;
    Some(match answer {
        Answer::Allowed => Finding::about(WHAT).warning("the provisioning credentials may also create users without the permissions boundary, so it does not limit who has these credentials").with_remedy("use docs/owner-iam-policy-with-boundary.json, which requires the boundary"),
        Answer::Denied(_) | Answer::Depends(_) => {
            Finding::about(WHAT)
                .good("the provisioning credentials cannot create users without the permissions boundary")
        }
    })
}
