//! How far the clock here is from a store's.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::SystemTime;

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeDeserializationInterceptorContextRef;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::DateTime;
use aws_smithy_types::config_bag::ConfigBag;
use aws_smithy_types::date_time::Format;

/// Reads the time in the answers of the calls that it intercepts, also in refusals.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock(Arc<Mutex<Option<f64>>>);

impl Clock {
    /// By how many seconds the clock here is ahead, as far as an answer has shown.
    pub(crate) fn ahead(&self) -> Option<f64> {
        *self.0.lock()
    }
}

impl Intercept for Clock {
    fn name(&self) -> &'static str {
        "the store's time"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        if let Some(there) = date.and_then(|date| DateTime::from_str(date, Format::HttpDate).ok()) {
            let here = DateTime::from(SystemTime::now());
            *self.0.lock() = Some(here.as_secs_f64() - there.as_secs_f64());
        }
        Ok(())
    }
}
