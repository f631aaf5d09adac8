//! What the SDK repeats by itself, and what it leaves to the rate limiter.

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::{BeforeTransmitInterceptorContextRef, InterceptorContext};
use aws_smithy_runtime_api::client::interceptors::{Intercept, dyn_dispatch_hint};
use aws_smithy_runtime_api::client::retries::RequestAttempts;
use aws_smithy_runtime_api::client::retries::classifiers::{
    ClassifyRetry, RetryAction, RetryClassifierPriority, RetryReason,
};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;
use aws_smithy_types::retry::ErrorKind;

use crate::client::call::Service;
use bucket_provisioner::store::Observer;

/// Counts what the SDK repeats by itself.
#[derive(Debug)]
pub(super) struct CountRetries(pub(super) Observer);

#[dyn_dispatch_hint]
impl Intercept for CountRetries {
    fn name(&self) -> &'static str {
        "CountRetries"
    }

    fn read_before_attempt(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if config.load::<RequestAttempts>().is_some_and(|made| made.attempts() > 1) {
            self.0.retried(Service::Objects.name());
        }
        Ok(())
    }
}

/// Leaves calls that were refused for their rate to the pacer.
#[derive(Debug)]
pub(super) struct ThrottlingIsNotRetried;

impl ClassifyRetry for ThrottlingIsNotRetried {
    fn classify_retry(&self, _: &InterceptorContext) -> RetryAction {
        RetryAction::NoActionIndicated
    }

    fn classify_retry_v2(&self, _: &InterceptorContext, others: &RetryAction) -> RetryAction {
        match others {
            RetryAction::RetryIndicated(RetryReason::RetryableError { kind: ErrorKind::ThrottlingError, .. }) => {
                RetryAction::RetryForbidden
            }
            _ => RetryAction::NoActionIndicated,
        }
    }

    fn priority(&self) -> RetryClassifierPriority {
        // After all that come with the SDK.
        RetryClassifierPriority::run_after(RetryClassifierPriority::transient_error_classifier())
    }

    fn name(&self) -> &'static str {
        "refused for its rate"
    }
}
