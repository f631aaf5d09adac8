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

  by_another_role = var.trusted_role_arn != ""
  trusted_account = element(split(":", "${var.trusted_role_arn}::::"), 4)
  by_pod_identity = !local.by_another_role && var.oidc_provider == ""

  role_name     = var.role_name == "" ? "aws-s3-provisioner-${var.cluster_name}" : var.role_name
  user_path     = var.user_path == "" ? "/aws-s3-provisioner-${var.cluster_name}/" : var.user_path
  boundary_name = var.boundary_name == "" ? "aws-s3-provisioner-boundary-${var.cluster_name}" : var.boundary_name
  external_ids  = length(var.external_ids) == 0 ? [var.cluster_name] : var.external_ids
  boundary_arn  = var.existing_boundary_arn == "" ? aws_iam_policy.boundary[0].arn : var.existing_boundary_arn

  files = {
    boundary     = file("${local.docs}/permissions-boundary.json")
    owner        = file("${local.docs}/owner-iam-policy-with-boundary.json")
    irsa         = file("${path.module}/../irsa-trust-policy.json")
    pod_identity = file("${path.module}/../pod-identity-trust-policy.json")
    pod_role     = file("${path.module}/../pod-role-trust-policy.json")
    pods         = file("${local.docs}/owner-iam-policy-pod-identity.json")
  }

  in_account = {
    for name, text in local.files :
    name => replace(replace(text, "111122223333", local.account), "arn:aws:", "arn:${local.partition}:")
  }

  # Upper case cannot be the name of a bucket.
  existing_buckets = length(var.existing_buckets) == 0 ? ["NO-BUCKET"] : var.existing_buckets
  next             = "\", \"arn:${local.partition}:s3:::"
  prefixes         = join("*${local.next}", var.bucket_prefixes)
  buckets          = join(local.next, local.existing_buckets)
  listed_ids       = join("\", \"", local.external_ids)
  objects          = join("/*${local.next}", local.existing_buckets)

  boundary = replace(
    replace(
      replace(local.in_account.boundary, "company-archive/*", "${local.objects}/*"),
      "company-archive\"", "${local.buckets}\""
    ),
    "acme-*", "${local.prefixes}*"
  )
  owner = replace(
    replace(
      replace(
        replace(local.in_account.owner, "company-archive", local.buckets), "acme-*", "${local.prefixes}*"
      ),
      "arn:${local.partition}:iam::${local.account}:policy/aws-s3-provisioner-boundary", local.boundary_arn
    ),
    "user/aws-s3-provisioner/", "user${local.user_path}"
  )
  settings = replace(
    replace(
      replace(file("${local.docs}/owner-iam-policy-settings.json"), "arn:aws:", "arn:${local.partition}:"),
      "acme-*", "${local.prefixes}*"
    ),
    "user/aws-s3-provisioner/", "user${local.user_path}"
  )
  keyless = replace(
    replace(
      replace(
        replace(file("${local.docs}/owner-iam-policy-keyless.json"), "111122223333", local.account),
        "arn:aws:", "arn:${local.partition}:"
      ),
      "arn:${local.partition}:iam::${local.account}:policy/aws-s3-provisioner-boundary", local.boundary_arn
    ),
    "role/aws-s3-provisioner/", "role${local.user_path}"
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
  pods = replace(
    replace(
      replace(local.in_account.pods, "us-west-1", local.region),
      "aws-s3-provisioner-CLUSTER", local.role_name
    ),
    "/CLUSTER", "/${var.cluster_name}"
  )
  pod_role = replace(local.in_account.pod_role, "aws-s3-provisioner-CLUSTER", local.role_name)
  trusted = replace(
    replace(
      replace(
        file("${path.module}/../owner-role-trust-policy.json"),
        "arn:aws:iam::111122223333:role/aws-s3-provisioner-my-cluster", var.trusted_role_arn
      ),
      "\"111122223333\"", "\"${local.trusted_account}\""
    ),
    "\"my-cluster\"", "\"${local.listed_ids}\""
  )
  roles = replace(
    file("${local.docs}/owner-iam-policy-roles.json"),
    "arn:aws:iam::444455556666:role/aws-s3-provisioner-my-cluster", join("\", \"", var.owner_role_arns)
  )
}

resource "aws_iam_policy" "boundary" {
  count       = var.existing_boundary_arn == "" ? 1 : 0
  name        = local.boundary_name
  description = "What users of claims can do at most"
  policy      = local.boundary
  tags        = var.tags

  # Users of claims have it, and new ones cannot be created without it.
  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_iam_policy" "owner" {
  name        = local.role_name
  description = "What aws-s3-provisioner does"
  policy      = local.owner
  tags        = var.tags
}

resource "aws_iam_policy" "roles" {
  count       = length(var.owner_role_arns) == 0 ? 0 : 1
  name        = "${local.role_name}-roles"
  description = "The roles that aws-s3-provisioner assumes"
  policy      = local.roles
  tags        = var.tags
}

resource "aws_iam_policy" "settings" {
  count       = var.bucket_settings ? 1 : 0
  name        = "${local.role_name}-settings"
  description = "The settings of buckets that aws-s3-provisioner manages"
  policy      = local.settings
  tags        = var.tags
}

resource "aws_iam_policy" "keyless" {
  count       = var.keyless ? 1 : 0
  name        = "${local.role_name}-keyless"
  description = "The roles that aws-s3-provisioner makes for ServiceAccounts"
  policy      = local.keyless
  tags        = var.tags
}

resource "aws_iam_policy" "pods" {
  count       = var.pod_identity ? 1 : 0
  name        = "${local.role_name}-pods"
  description = "The role that aws-s3-provisioner associates with ServiceAccounts"
  policy      = local.pods
  tags        = var.tags
}

resource "aws_iam_role" "pods" {
  count                = var.pod_identity ? 1 : 0
  name                 = "${local.role_name}-pods"
  description          = "Pods whose ServiceAccounts have buckets of aws-s3-provisioner"
  assume_role_policy   = local.pod_role
  permissions_boundary = var.existing_boundary_arn == "" ? var.role_permissions_boundary : var.existing_boundary_arn
  tags                 = var.tags
}

# The associations limit it to the buckets of each ServiceAccount.
resource "aws_iam_policy" "pod_role" {
  count       = var.pod_identity ? 1 : 0
  name        = "${local.role_name}-pod-role"
  description = "What pods of claims can do at most"
  policy      = local.boundary
  tags        = var.tags
}

resource "aws_iam_role_policy_attachment" "pod_role" {
  count      = var.pod_identity ? 1 : 0
  role       = aws_iam_role.pods[0].name
  policy_arn = aws_iam_policy.pod_role[0].arn
}

resource "aws_iam_role" "operator" {
  name                 = local.role_name
  description          = "aws-s3-provisioner"
  assume_role_policy   = local.by_another_role ? local.trusted : local.by_pod_identity ? local.pod_identity : local.irsa
  permissions_boundary = var.role_permissions_boundary
  tags                 = var.tags
}

resource "aws_iam_role_policy_attachment" "owner" {
  role       = aws_iam_role.operator.name
  policy_arn = aws_iam_policy.owner.arn
}

resource "aws_iam_role_policy_attachment" "roles" {
  count      = length(var.owner_role_arns) == 0 ? 0 : 1
  role       = aws_iam_role.operator.name
  policy_arn = aws_iam_policy.roles[0].arn
}

resource "aws_iam_role_policy_attachment" "settings" {
  count      = var.bucket_settings ? 1 : 0
  role       = aws_iam_role.operator.name
  policy_arn = aws_iam_policy.settings[0].arn
}

resource "aws_iam_role_policy_attachment" "keyless" {
  count      = var.keyless ? 1 : 0
  role       = aws_iam_role.operator.name
  policy_arn = aws_iam_policy.keyless[0].arn
}

resource "aws_iam_role_policy_attachment" "pods" {
  count      = var.pod_identity ? 1 : 0
  role       = aws_iam_role.operator.name
  policy_arn = aws_iam_policy.pods[0].arn
}

resource "aws_eks_pod_identity_association" "operator" {
  count           = local.by_pod_identity ? 1 : 0
  cluster_name    = var.cluster_name
  namespace       = var.namespace
  service_account = var.service_account
  role_arn        = aws_iam_role.operator.arn
}
