//! The operator's binary: reads the command line and runs the command.

mod args;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use args::{Args, ClusterArgs, Command};
use bucket_provisioner::aws::AwsProvisioner;
use bucket_provisioner::runtime::lease::{self, Term};
use bucket_provisioner::{api, controller, runtime};
use futures::FutureExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};

fn main() -> ExitCode {
    let args = Args::read();
    runtime::telemetry::init(args.log.format(), args.log.verbosity);
    let done = match &args.command {
        Some(Command::Crds { output_dir }) => crds(output_dir.as_deref()),
        Some(Command::Record { claim, bucket }) => block_on(record(&args, claim, bucket.clone())),
        Some(Command::Run) | None => block_on(serve(&args)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Does not wait for tasks that still run, because they must not go on.
fn block_on(work: impl Future<Output = Result<(), Box<dyn Error>>>) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Runtime::new()?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

async fn serve(args: &Args) -> Result<(), Box<dyn Error>> {
    let mut config = cluster(&args.cluster).await?;
    let options = args.options(std::env::var("LIB_BUCKET_PROVISIONER_THREADS").ok().as_deref());
    let provisioner = AwsProvisioner::new(&options.provisioner_name);
    let stop = runtime::signals::shutdown().boxed().shared();
    let lease = args.lease(&config.default_namespace)?;
    let lease_client = lease::client(&config)?;
    // Retries behind the fence of the lease would pass it.
    config.default_retry = lease.is_none();
    let client = runtime::cluster::client(config, runtime::cluster::ANSWER_LIMIT)?;
    let Some(lease) = lease else {
        controller::run(client, provisioner, options, stop).await;
        return Ok(());
    };
    let lead = |term: Term| {
        let client = term.fence(client);
        let provisioner = provisioner.only_while(move || !term.is_over());
        controller::run(client, provisioner, options, stop.clone())
    };
    lease::lead(lease_client, lease, stop.clone(), lead).await?;
    Ok(())
}

async fn record(
    args: &Args,
    (namespace, name): &(String, String),
    bucket: Option<String>,
) -> Result<(), Box<dyn Error>> {
    let client = runtime::cluster::client(cluster(&args.cluster).await?, runtime::cluster::ANSWER_LIMIT)?;
    let provisioner_name = args.options(None).provisioner_name;
    let provisioner = AwsProvisioner::new(&provisioner_name);
    let record = controller::recall(client, &provisioner, &provisioner_name, (namespace, name), bucket).await?;
    print!("{}", serde_saphyr::to_string(&record)?);
    Ok(())
}

async fn cluster(args: &ClusterArgs) -> Result<kube::Config, Box<dyn Error>> {
    let mut config = match &args.kubeconfig {
        Some(file) => {
            kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::infer().await?,
    };
    if let Some(master) = args.master.as_deref().filter(|master| !master.is_empty()) {
        config.cluster_url = master.parse().map_err(|error| format!("--master {master:?} is not a URL: {error}"))?;
    }
    Ok(config)
}

fn crds(output_dir: Option<&Path>) -> Result<(), Box<dyn Error>> {
    for (file, crd) in api::crds() {
        let yaml = serde_saphyr::to_string(&crd)?;
        match output_dir {
            Some(dir) => std::fs::write(dir.join(file), yaml)
                .map_err(|e| format!("cannot write {}: {e}", dir.join(file).display()))?,
            None => print!("---\n{yaml}"),
        }
    }
    Ok(())
}

/// An error with all its causes, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
