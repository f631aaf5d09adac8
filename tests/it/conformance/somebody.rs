//! The kit against a program of which it knows no Rust: the directories once more, inspected with a shell.

use std::process::Stdio;

use tokio::process::Command;

const INVENTORY: &str = r#"
cd "$CHECK_DIR"
for bucket in buckets/*/; do
  [[ -d $bucket ]] || continue
  echo "bucket $(basename "$bucket")"
  find "$bucket" -type f -printf "object $(basename "$bucket") %P\n"
done
for key in keys/*; do
  [[ ! -f $key ]] || echo "key $(grep -oP '"user":"\K[^"]+' "$key") $(basename "$key")"
done
"#;
const REMOVE: &str = r#"
cd "$CHECK_DIR"
while read -r kind name id; do
  [[ $kind != bucket ]] || rm -rf "buckets/$name" "marks/$name"
  [[ $kind != key ]] || rm -f "keys/$id"
done
"#;
const CREATE_BUCKET: &str =
    r#"mkdir -p "$CHECK_DIR/buckets/$BUCKET"; echo content >"$CHECK_DIR/buckets/$BUCKET/theirs""#;
const PUT: &str = r#"
curl --silent --show-error --fail --aws-sigv4 "aws:amz:$AWS_REGION:s3" --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
  --header "x-amz-content-sha256: UNSIGNED-PAYLOAD" --data content --request PUT "$AWS_ENDPOINT_URL_S3/$BUCKET_NAME/$OBJECT"
"#;
const LIST: &str = r#"
curl --silent --show-error --fail --aws-sigv4 "aws:amz:$AWS_REGION:s3" --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
  --header "x-amz-content-sha256: UNSIGNED-PAYLOAD" "$AWS_ENDPOINT_URL_S3/$BUCKET_NAME?list-type=2" | { grep -oP '<Key>\K[^<]+' || true; }
"#;

#[tokio::test]
async fn a_program_can_be_checked_without_any_rust() {
    let program = super::example_path("directory-provisioner");
    let options = [
        ("--can", "greenfield,brownfield,tags,rotation,persistence"),
        ("--env", "DIRECTORY_ROOT={dir}"),
        ("--env", "DIRECTORY_ADDRESS={address}"),
        ("--inventory", INVENTORY),
        ("--remove", REMOVE),
        ("--create-bucket", CREATE_BUCKET),
        ("--put", PUT),
        ("--list", LIST),
    ];
    let output = Command::new("hack/conformance.sh")
        .args(options.iter().flat_map(|(option, value)| [option, value]))
        .arg(program)
        .args([
            "--",
            "keys_open_no_bucket_of_another_claim",
            "keys_are_rotated_and_the_previous_ones_retired",
            "claims_share_an_existing_bucket_with_separate_keys",
            "killed_while_a_retained_claim_is_deleted",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains(" 4 passed"), "{out}\n{err}");
    let skipped: Vec<_> = err.lines().filter(|line| line.contains("skipped")).collect();
    assert!(skipped.iter().all(|line| line.contains("for want of Http")), "{skipped:#?}");
}
