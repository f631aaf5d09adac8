//! The operator, as a task in the test's own process or as the real binary.

use std::ops::{Deref, DerefMut};

use aws_s3_provisioner::AwsProvisioner;
use bucket_provisioner::controller::{self, Options};
use operator_runtime::{self, cluster::ANSWER_LIMIT};
pub(crate) use provisioner_conformance::{Log, send_signal};
use provisioner_conformance::{Program, Running};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{PATIENCE, World};

/// How the operator runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    InProcess,
    Binary,
}

/// A running operator behind the world's proxies; dropping it kills it.
#[allow(clippy::large_enum_variant, reason = "there are few of them")]
pub(crate) enum Operator {
    InProcess { stop: oneshot::Sender<()>, task: JoinHandle<()> },
    Binary(Binary),
}

impl Operator {
    /// Starts an operator for the claims of the world.
    pub(crate) async fn start(world: &World, kind: Kind) -> Self {
        match kind {
            Kind::InProcess => Self::with(world, Self::options(world)),
            Kind::Binary => Self::Binary(Binary::start(world, &[], &[])),
        }
    }

    /// Options of an operator for the claims of the world.
    pub(crate) fn options(world: &World) -> Options {
        Options::new(&world.provisioner)
            .with_namespace(world.namespace.clone())
            .with_field_manager("aws-s3-provisioner")
    }

    /// Starts an operator in this process.
    pub(crate) fn with(world: &World, options: Options) -> Self {
        let client = operator_runtime::cluster::client(world.config(), ANSWER_LIMIT).unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let store = AwsProvisioner::new(options.start(true));
        let task = tokio::spawn(controller::run(client, store, options, shutdown));
        Self::InProcess { stop, task }
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) async fn stop(self) {
        match self {
            Self::InProcess { stop, task } => {
                let _ = stop.send(());
                tokio::time::timeout(PATIENCE, task).await.expect("the operator stops").unwrap();
            }
            Self::Binary(mut binary) => {
                binary.terminate();
                binary.ended(PATIENCE).await;
            }
        }
    }
}

/// The real binary.
pub(crate) struct Binary(Running);

impl Deref for Binary {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.0
    }
}

impl DerefMut for Binary {
    fn deref_mut(&mut self) -> &mut Running {
        &mut self.0
    }
}

/// The class parameter of a test that has IAM at an address of AWS; see [`Binary::start_at_aws`].
pub(crate) const IAM_OF_AWS: (&str, &str) = ("iamEndpoint", "http://iam.amazonaws.com");

/// The operator for AWS.
pub(crate) fn operator() -> Program {
    Program::new(env!("CARGO_BIN_EXE_aws-s3-provisioner"))
}

impl Binary {
    /// Starts the binary in a network whose proxy is the world's AWS: what is sent to AWS's own address arrives there,
    /// and for classes with [`IAM_OF_AWS`] the emulator is AWS rather than another store.
    pub(crate) fn start_at_aws(world: &World) -> Self {
        let sts = ("AWS_ENDPOINT_URL_STS", "http://sts.us-west-1.amazonaws.com");
        Self::start(world, &[], &[("HTTP_PROXY", &world.aws.url), ("NO_PROXY", "127.0.0.1"), sts])
    }

    /// Starts the binary on the world's proxies, with these arguments and variables on top.
    pub(crate) fn start(world: &World, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let args = [&["--namespace", &world.namespace], args].concat();
        Self::start_with(world, &world.kubeconfig(), &args, environment)
    }

    /// Starts the binary with this kubeconfig.
    pub(crate) fn start_with(
        world: &World,
        kubeconfig: &serde_json::Value,
        args: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let program = operator().args(args.iter().copied());
        let program = environment.iter().fold(program, |program, (name, value)| program.env(*name, *value));
        Self(program.start_with(world, kubeconfig))
    }

    /// Runs a subcommand of the binary to its end, with the world's cluster and provisioner; returns what it printed,
    /// or what it complained about.
    pub(crate) async fn run(world: &World, args: &[&str]) -> Result<String, String> {
        operator().args(args.iter().copied()).run(world).await
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) async fn kill(self) {
        self.0.kill().await;
    }
}
