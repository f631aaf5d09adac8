//! Lists the public items of a library from what rustdoc wrote about it as JSON. hack/public-api.sh calls it.

use std::process::ExitCode;

use public_api::PublicApi;

fn main() -> ExitCode {
    let Some(json) = std::env::args_os().nth(1) else {
        eprintln!("usage: list-public-api JSON");
        return ExitCode::FAILURE;
    };
    match list(&json) {
        Ok(api) => {
            print!("{api}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{} cannot be read: {problem}", json.display());
            eprintln!("each compiler has its format: hack/public-api/Cargo.toml must name a public-api that reads it");
            ExitCode::FAILURE
        }
    }
}

fn list(json: &std::ffi::OsStr) -> public_api::Result<PublicApi> {
    public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
}
