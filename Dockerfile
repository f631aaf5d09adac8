# A static binary in an empty image: `docker build -t aws-s3-provisioner:0.1.0 .`
FROM rust:1.95-alpine AS build
RUN apk add --no-cache build-base cmake perl ca-certificates
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin aws-s3-provisioner

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/target/release/aws-s3-provisioner /aws-s3-provisioner
USER 65532:65532
ENTRYPOINT ["/aws-s3-provisioner"]
