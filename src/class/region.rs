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

/// Labels in the names of load balancers and machines, behind which is whatever their owner runs.
const OF_CUSTOMERS: [&str; 3] = ["elb", "compute", "compute-1"];

/// Whether a host name is one of AWS's services, including private endpoints.
pub(crate) fn is_host_of_aws(host: &str) -> bool {
    if host.split('.').any(|label| OF_CUSTOMERS.contains(&label)) {
        return false;
    }
    let partitions = OTHERS.iter().map(|(_, partition)| partition.dns_suffix).chain([AWS.dns_suffix]);
    partitions.chain(DUAL_STACK).any(|domain| host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')))
}

/// Which of AWS's own endpoints are used ("FIPS and dual-stack endpoints", AWS SDKs and Tools reference guide).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Variants {
    /// Those with certified cryptography.
    pub(crate) fips: bool,
    /// Those with IPv6 and IPv4.
    pub(crate) dual_stack: bool,
}

/// Host name of S3 in a region.
pub(crate) fn s3_host(region: &str, variants: Variants) -> String {
    let service = if variants.fips { "s3-fips" } else { "s3" };
    let dual_stack = if variants.dual_stack { "dualstack." } else { "" };
    format!("{service}.{dual_stack}{region}.{}", partition(region).dns_suffix)
}

/// The region in a host name of AWS, such as that of a private endpoint.
pub(crate) fn region_in(host: &str) -> Option<&str> {
    host.split('.').find(|label| {
        let parts: Vec<&str> = label.split('-').collect();
        let Some((number, [first, rest @ ..])) = parts.split_last() else { return false };
        let is_word = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase());
        // Not the id of an endpoint, such as vpce-0123-45.
        is_word(first) && !rest.is_empty() && rest.iter().all(is_word) && number.parse::<u8>().is_ok()
    })
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
            assert_eq!((partition(region).id, s3_host(region, Variants::default()).as_str()), (id, host));
        }
    }

    #[test]
    fn hosts_of_fips_and_dual_stack_are_aws_own() {
        for (fips, dual_stack, host) in [
            (true, false, "s3-fips.us-west-1.amazonaws.com"),
            (false, true, "s3.dualstack.us-west-1.amazonaws.com"),
            (true, true, "s3-fips.dualstack.us-west-1.amazonaws.com"),
        ] {
            assert_eq!(s3_host("us-west-1", Variants { fips, dual_stack }), host);
            assert!(is_host_of_aws(host), "{host}");
        }
    }

    #[test]
    fn the_region_in_a_host_name_is_found() {
        for (host, region) in [
            ("sts.eu-west-1.amazonaws.com", Some("eu-west-1")),
            ("sts-fips.us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
            ("vpce-0123456789-12.sts.eu-central-1.vpce.amazonaws.com", Some("eu-central-1")),
            ("vpce-0a1b2c3d-12345678-us-east-1b.sts.us-east-1.vpce.amazonaws.com", Some("us-east-1")),
            ("sts.us-isob-east-1.sc2s.sgov.gov", Some("us-isob-east-1")),
            ("sts.amazonaws.com", None),
            ("iam.global.api.aws", None),
        ] {
            assert_eq!(region_in(host), region, "{host}");
        }
    }
}
