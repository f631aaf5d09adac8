variable "oidc_provider" {
  description = "For IRSA: issuer of the cluster's tokens without https://. It must be an identity provider in IAM."
  type        = string
  default     = ""
}

variable "audience" {
  description = "For IRSA: audience of the tokens. kOps uses amazonaws.com."
  type        = string
  default     = "sts.amazonaws.com"
}

variable "cluster_name" {
  description = "For Pod Identity: name of the EKS cluster. The add-on eks-pod-identity-agent must run there."
  type        = string
  default     = ""
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

variable "boundary_name" {
  description = "Name of the permissions boundary."
  type        = string
  default     = "aws-s3-provisioner-boundary"
}

variable "user_path" {
  description = "Path of the users of claims, as in the parameter iamPath of the StorageClasses."
  type        = string
  default     = "/aws-s3-provisioner/"

  validation {
    condition     = can(regex("^/([A-Za-z0-9._-]+/)+$", var.user_path))
    error_message = "It must begin and end with a slash, such as /aws-s3-provisioner/."
  }
}
