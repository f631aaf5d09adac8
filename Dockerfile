# The operator alone: a static program and CA certificates; no shell, no libraries.
#
#     docker build --tag aws-s3-provisioner:0.1.0 .
#     docker buildx build --platform linux/amd64,linux/arm64 --tag REGISTRY/aws-s3-provisioner:0.1.0 --push .
#
# hack/image.sh builds the program outside instead, and needs no other image.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates cmake g++ make
RUN cargo install --locked cargo-auditable@0.7.7
WORKDIR /src
COPY . .
# Where the source is: remedies of `doctor` link to its pages.
ARG SOURCE=
# Scanners read the dependencies from the program itself. Packed relocations make it a megabyte smaller.
RUN cargo auditable rustc --locked --release --bin aws-s3-provisioner -- \
    -C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs
RUN install -D target/release/aws-s3-provisioner /image/aws-s3-provisioner && \
    install -D --mode 0644 /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ca-certificates.crt

FROM scratch
# Given by who publishes the image: the commit, the time in UTC as RFC 3339, where the source is.
ARG REVISION=
ARG CREATED=
ARG SOURCE=
LABEL org.opencontainers.image.title="aws-s3-provisioner" \
      org.opencontainers.image.description="Kubernetes operator that provisions AWS S3 buckets for ObjectBucketClaims" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED" \
      org.opencontainers.image.source="$SOURCE"
COPY --from=build /image /
USER 65532:65532
ENTRYPOINT ["/aws-s3-provisioner"]
