//! AWS partitions: to which one a region belongs, and what that means for ARNs and host names.
//!
//! Source: the partition metadata of the AWS SDKs (`partitions.json`).

/// A group of regions with its own accounts, ARNs and domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Partition {
    /// The second field of every ARN.
    pub(crate) id: &'static str,
    /// The domain at the end of host names of services.
    pub(crate) dns_suffix: &'static str,
    /// The region for which calls to IAM are signed.
    pub(crate) iam_region: &'static str,
}

const AWS: Partition = Partition { id: "aws", dns_suffix: "amazonaws.com", iam_region: "us-east-1" };

/// By the prefix of the region's name. All other regions are in the commercial partition.
const OTHERS: [(&str, Partition); 7] = [
    ("cn-", Partition { id: "aws-cn", dns_suffix: "amazonaws.com.cn", iam_region: "cn-north-1" }),
    ("us-gov-", Partition { id: "aws-us-gov", dns_suffix: "amazonaws.com", iam_region: "us-gov-west-1" }),
    ("us-iso-", Partition { id: "aws-iso", dns_suffix: "c2s.ic.gov", iam_region: "us-iso-east-1" }),
    ("us-isob-", Partition { id: "aws-iso-b", dns_suffix: "sc2s.sgov.gov", iam_region: "us-isob-east-1" }),
    ("eu-isoe-", Partition { id: "aws-iso-e", dns_suffix: "cloud.adc-e.uk", iam_region: "eu-isoe-west-1" }),
    ("us-isof-", Partition { id: "aws-iso-f", dns_suffix: "csp.hci.ic.gov", iam_region: "us-isof-south-1" }),
    ("eusc-", Partition { id: "aws-eusc", dns_suffix: "amazonaws.eu", iam_region: "eusc-de-east-1" }),
];

/// The partition of a region.
pub(crate) fn partition(region: &str) -> Partition {
    OTHERS.iter().find(|(prefix, _)| region.starts_with(prefix)).map_or(AWS, |(_, partition)| *partition)
}

/// Further domains of AWS: dual-stack endpoints, for IPv6 and IPv4.
const DUAL_STACK: [&str; 8] = [
    "api.aws",
    "api.amazonwebservices.com.cn",
    "api.aws.ic.gov",
    "api.aws.scloud",
    "api.cloud-aws.adc-e.uk",
    "api.aws.hci.ic.gov",
    "api.amazonwebservices.eu",
    "on.aws",
];

/// Whether a host name is one of AWS's, including private endpoints.
pub(crate) fn is_host_of_aws(host: &str) -> bool {
    let partitions = OTHERS.iter().map(|(_, partition)| partition.dns_suffix).chain([AWS.dns_suffix]);
    partitions.chain(DUAL_STACK).any(|domain| host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')))
}

/// Host name of S3 in a region.
pub(crate) fn s3_host(region: &str) -> String {
    format!("s3.{region}.{}", partition(region).dns_suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_aws_are_known_in_every_partition() {
        for host in [
            "iam.amazonaws.com",
            "iam.global.api.aws",
            "iam.cn-north-1.amazonaws.com.cn",
            "vpce-0a1b-2c3d.iam.us-east-1.vpce.amazonaws.com",
            "iam.eusc-de-east-1.amazonaws.eu",
        ] {
            assert!(is_host_of_aws(host), "{host}");
        }
        for host in ["127.0.0.1", "store.example", "amazonaws.com.example", "notamazonaws.com", "localhost", ""] {
            assert!(!is_host_of_aws(host), "{host}");
        }
    }

    #[test]
    fn every_partition_is_known_by_its_regions() {
        for (region, id, host) in [
            ("us-west-1", "aws", "s3.us-west-1.amazonaws.com"),
            ("us-gov-west-1", "aws-us-gov", "s3.us-gov-west-1.amazonaws.com"),
            ("cn-north-1", "aws-cn", "s3.cn-north-1.amazonaws.com.cn"),
            ("us-iso-east-1", "aws-iso", "s3.us-iso-east-1.c2s.ic.gov"),
            ("us-isob-east-1", "aws-iso-b", "s3.us-isob-east-1.sc2s.sgov.gov"),
            ("eu-isoe-west-1", "aws-iso-e", "s3.eu-isoe-west-1.cloud.adc-e.uk"),
            ("us-isof-south-1", "aws-iso-f", "s3.us-isof-south-1.csp.hci.ic.gov"),
            ("eusc-de-east-1", "aws-eusc", "s3.eusc-de-east-1.amazonaws.eu"),
        ] {
            assert_eq!((partition(region).id, s3_host(region).as_str()), (id, host));
        }
    }
}
