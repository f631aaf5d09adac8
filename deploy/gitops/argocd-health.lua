-- Health of ObjectBucketClaims in Argo CD, for resource.customizations.health.objectbucket.io_ObjectBucketClaim in the
-- ConfigMap argocd-cm. The check that Argo CD brings along reads the phase alone: for it, a bound claim is healthy although
-- its bucket or its keys no longer exist.
-- Reasons that end by themselves, also on a claim that is bound.
local passing = {
  KubernetesError = true,
  NotVisibleYet = true,
  Pending = true,
  Provisioning = true,
  Purging = true,
  Removed = true,
  Removing = true,
  Settling = true,
  StoreBusy = true,
  StoreFailing = true,
  StoreUnreachable = true,
  Throttled = true,
  TimedOut = true,
  WaitingForCredentials = true,
  WaitingForStore = true,
}

local status = obj.status or {}
local ready
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Ready" then
    ready = condition
  end
end

local function health(is, message)
  return { status = is, message = message or "" }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", ready and ready.message)
end
if ready == nil then
  -- The CRD of other software keeps no conditions, or nobody has seen the claim.
  local by_phase = { Bound = "Healthy", Failed = "Degraded" }
  return health(by_phase[status.phase] or "Progressing", status.phase)
end
if ready.status == "True" then
  local observed = ready.observedGeneration or obj.metadata.generation
  return health(observed < obj.metadata.generation and "Progressing" or "Healthy", ready.message)
end
local is_lost = status.phase == "Bound" and ready.status == "False" and not passing[ready.reason]
return health((is_lost or status.phase == "Failed") and "Degraded" or "Progressing", ready.message)
