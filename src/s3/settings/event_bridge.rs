//! `eventBridge`: S3 reports to EventBridge what happens in the bucket. Other notifications of the bucket stay.

use aws_sdk_s3::types::{EventBridgeConfiguration, NotificationConfiguration};

use super::sub_resource::SubResource;
use crate::class::target::BucketRef;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::store::Store;

/// Events go to EventBridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventBridge;

impl SubResource for EventBridge {
    type Found = NotificationConfiguration;

    const NAME: &'static str = "the notification of EventBridge";
    const IS_SHARED: bool = true;
    const READ: Operation = Operation::GetBucketNotificationConfiguration;
    const WRITE: Operation = Operation::PutBucketNotificationConfiguration;

    async fn read(store: &Store, bucket: BucketRef<'_>) -> Result<Self::Found, CallError> {
        let call = store.s3.get_bucket_notification_configuration().bucket(bucket.name);
        let call = call.set_expected_bucket_owner(bucket.account());
        let send = || call.clone().send();
        let found = store.call(Self::READ, Resource::bucket(bucket.name), send).await?;
        Ok(NotificationConfiguration::builder()
            .set_topic_configurations(found.topic_configurations)
            .set_queue_configurations(found.queue_configurations)
            .set_lambda_function_configurations(found.lambda_function_configurations)
            .set_event_bridge_configuration(found.event_bridge_configuration)
            .build())
    }

    fn is_in(&self, found: &Self::Found) -> bool {
        found.event_bridge_configuration.is_some()
    }

    async fn write(&self, store: &Store, bucket: BucketRef<'_>, found: Option<&Self::Found>) -> Result<(), CallError> {
        let mut configuration = found.cloned().unwrap_or_else(|| NotificationConfiguration::builder().build());
        configuration.event_bridge_configuration = Some(EventBridgeConfiguration::builder().build());
        let call = store.s3.put_bucket_notification_configuration().bucket(bucket.name);
        let call = call.notification_configuration(configuration).set_expected_bucket_owner(bucket.account());
        // A queue of others that no longer works must not keep this from being set.
        let call = call.skip_destination_validation(true);
        store.call(Self::WRITE, Resource::bucket(bucket.name), || call.clone().send()).await.map(drop)
    }
}
