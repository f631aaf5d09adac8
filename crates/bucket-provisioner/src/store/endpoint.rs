//! Where a bucket is.

/// The endpoint of the bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Endpoint {
    /// DNS name or address, without scheme and port.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Region, as the store names it.
    pub region: String,
    /// Full URL for a store whose endpoint an SDK cannot derive from the region.
    pub url: Option<String>,
}

impl Endpoint {
    /// An endpoint that is found by host and port, in region `us-east-1`, as SDKs call the region of a store that has none.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port, region: "us-east-1".to_owned(), url: None }
    }

    /// In another region, as the store names it.
    pub fn with_region(self, region: impl Into<String>) -> Self {
        Self { region: region.into(), ..self }
    }

    /// With a full URL, such as `https://s3.example.com:9000`.
    pub fn with_url(self, url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..self }
    }
}
