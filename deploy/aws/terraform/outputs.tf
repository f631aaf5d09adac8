output "role_arn" {
  description = "For IRSA: the annotation eks.amazonaws.com/role-arn of the service account. With trusted_role_arn: the parameter ownerRole of the StorageClasses."
  value       = aws_iam_role.operator.arn
}

output "boundary_arn" {
  description = "The parameter permissionsBoundary of the StorageClasses."
  value       = local.boundary_arn
}

output "user_path" {
  description = "The parameter iamPath of the StorageClasses."
  value       = local.user_path
}

output "pod_role_arn" {
  description = "With pod_identity: the parameter podRole of the StorageClasses."
  value       = var.pod_identity ? aws_iam_role.pods[0].arn : null
}
