variable "cluster_name" {
  description = "Name of the cluster, which the names in IAM end in. For Pod Identity it is the name of the EKS cluster, and the add-on eks-pod-identity-agent must run there."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", var.cluster_name))
    error_message = "Write the name of the cluster: letters, digits, '.', '_' and '-'."
  }
}

variable "bucket_prefixes" {
  description = "How the names of the buckets begin that the operator creates and deletes, as in the parameter bucketNamePrefix of the StorageClasses, such as [\"acme-\"]. With [\"*\"] it can delete every bucket of the account."
  type        = list(string)

  validation {
    condition     = length(var.bucket_prefixes) > 0 && alltrue([for prefix in var.bucket_prefixes : can(regex("^([a-z0-9][a-z0-9.-]*|\\*)$", prefix))])
    error_message = "Write at least one prefix of lower-case letters, digits, '.' and '-', or \"*\" for all buckets of the account."
  }
}

variable "existing_buckets" {
  description = "Names of the existing buckets that claims get access to, as in the parameter bucketName of the StorageClasses."
  type        = list(string)
  default     = []
}

variable "bucket_settings" {
  description = "Whether StorageClasses have settings of buckets, such as bucketVersioning or encryption. Whoever has the credentials of the operator can then change these settings, and the policies of its buckets."
  type        = bool
  default     = false
}

variable "keyless" {
  description = "Whether StorageClasses have authentication ServiceAccount. The operator can then create roles at user_path, which have the permissions boundary."
  type        = bool
  default     = false
}

variable "pod_identity" {
  description = "The same for StorageClasses with eksCluster, of the EKS cluster cluster_name. There is then a role for pods, and the operator can associate it with ServiceAccounts of the cluster. It is named like the operator's, with -pods at the end: 64 characters at most."
  type        = bool
  default     = false
}

variable "oidc_provider" {
  description = "For IRSA: issuer of the cluster's tokens without https://. It must be an identity provider in IAM. Empty for Pod Identity."
  type        = string
  default     = ""
}

variable "audience" {
  description = "For IRSA: audience of the tokens. kOps uses amazonaws.com."
  type        = string
  default     = "sts.amazonaws.com"
}

variable "namespace" {
  description = "Namespace of the operator."
  type        = string
  default     = "aws-s3-provisioner"
}

variable "service_account" {
  description = "Service account of the operator."
  type        = string
  default     = "aws-s3-provisioner"
}

variable "owner_role_arns" {
  description = "ARNs of roles in other accounts that the operator assumes, as in the parameter ownerRole of the StorageClasses: the output role_arn of this module there."
  type        = list(string)
  default     = []
}

variable "trusted_role_arn" {
  description = "For an account without the cluster: ARN of the operator's role in the account of the cluster. That role alone can then assume the role of this module, and oidc_provider, audience, namespace and service_account do not count."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^(arn:aws[a-z-]*:iam::[0-9]{12}:role/[!-~]+)?$", var.trusted_role_arn))
    error_message = "Write the ARN of a role, such as arn:aws:iam::111122223333:role/aws-s3-provisioner-my-cluster."
  }
}

variable "external_ids" {
  description = "With trusted_role_arn: the parameter ownerRoleExternalId of the StorageClasses, and of earlier ones, which bound claims have. Empty for the name of the cluster."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.external_ids : can(regex("^[A-Za-z0-9_+=,.@:/-]{2,1224}$", id))])
    error_message = "Write 2 to 1,224 letters, digits and _+=,.@:/-."
  }
}

variable "user_path" {
  description = "Path of the users of claims, as in the parameter iamPath of the StorageClasses. Empty for /aws-s3-provisioner-CLUSTER/. No other cluster may have the same."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^(/([A-Za-z0-9._-]+/)+)?$", var.user_path))
    error_message = "It must begin and end with a slash, such as /aws-s3-provisioner-my-cluster/."
  }
}

variable "role_name" {
  description = "Name of the operator's role. Empty for aws-s3-provisioner-CLUSTER."
  type        = string
  default     = ""
}

variable "role_permissions_boundary" {
  description = "ARN of a permissions boundary for the operator's role."
  type        = string
  default     = null
}

variable "boundary_name" {
  description = "Name of the permissions boundary of users that is created. Empty for aws-s3-provisioner-boundary-CLUSTER."
  type        = string
  default     = ""
}

variable "existing_boundary_arn" {
  description = "ARN of an existing permissions boundary of users; then none is created."
  type        = string
  default     = ""
}

variable "tags" {
  description = "Tags of the role and the policies."
  type        = map(string)
  default     = {}
}
