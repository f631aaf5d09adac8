# The AWS identity of aws-s3-provisioner: a role that its service account can assume, the provisioning policy, and the
# permissions boundary of the users that it creates. The documents are those of docs/ and of the folder above; only
# their placeholders for account, partition and names are replaced.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  account   = data.aws_caller_identity.current.account_id
  partition = data.aws_partition.current.partition
  region    = data.aws_region.current.region
  docs      = "${path.module}/../../../docs"
  uses_irsa = var.oidc_provider != ""

  files = {
    boundary     = file("${local.docs}/permissions-boundary.json")
    owner        = file("${local.docs}/owner-iam-policy-with-boundary.json")
    irsa         = file("${path.module}/../irsa-trust-policy.json")
    pod_identity = file("${path.module}/../pod-identity-trust-policy.json")
  }

  in_account = {
    for name, text in local.files :
    name => replace(replace(text, "111122223333", local.account), "arn:aws:", "arn:${local.partition}:")
  }

  boundary = local.in_account.boundary
  owner = replace(
    replace(local.in_account.owner, "policy/aws-s3-provisioner-boundary", "policy/${var.boundary_name}"),
    "user/aws-s3-provisioner/", "user${var.user_path}"
  )
  irsa = replace(
    replace(
      replace(
        local.in_account.irsa,
        "oidc.eks.us-west-1.amazonaws.com/id/EXAMPLED539D4633E53DE1B71EXAMPLE", var.oidc_provider
      ),
      ":aud\": \"sts.amazonaws.com", ":aud\": \"${var.audience}"
    ),
    "system:serviceaccount:aws-s3-provisioner:aws-s3-provisioner",
    "system:serviceaccount:${var.namespace}:${var.service_account}"
  )
  pod_identity = replace(
    replace(
      replace(
        replace(local.in_account.pod_identity, "us-west-1", local.region),
        "cluster/CLUSTER", "cluster/${var.cluster_name}"
      ),
      "kubernetes-namespace\": \"aws-s3-provisioner", "kubernetes-namespace\": \"${var.namespace}"
    ),
    "kubernetes-service-account\": \"aws-s3-provisioner", "kubernetes-service-account\": \"${var.service_account}"
  )
}

resource "aws_iam_policy" "boundary" {
  name        = var.boundary_name
  description = "What users of claims can do at most"
  policy      = local.boundary

  # Users of claims have it, and new ones cannot be created without it.
  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_iam_policy" "owner" {
  name_prefix = "aws-s3-provisioner-"
  description = "What aws-s3-provisioner does"
  policy      = local.owner
}

resource "aws_iam_role" "operator" {
  name_prefix        = "aws-s3-provisioner-"
  description        = "aws-s3-provisioner"
  assume_role_policy = local.uses_irsa ? local.irsa : local.pod_identity

  lifecycle {
    precondition {
      condition     = (var.oidc_provider == "") != (var.cluster_name == "")
      error_message = "Set either oidc_provider (IRSA) or cluster_name (Pod Identity)."
    }
  }
}

resource "aws_iam_role_policy_attachment" "owner" {
  role       = aws_iam_role.operator.name
  policy_arn = aws_iam_policy.owner.arn
}

resource "aws_eks_pod_identity_association" "operator" {
  count           = local.uses_irsa ? 0 : 1
  cluster_name    = var.cluster_name
  namespace       = var.namespace
  service_account = var.service_account
  role_arn        = aws_iam_role.operator.arn
}
