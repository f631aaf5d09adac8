import os

import boto3

bucket = os.environ["BUCKET_NAME"]
s3 = boto3.client("s3")
s3.put_object(Bucket=bucket, Key="hello.txt", Body=b"hello from Python")
print(s3.get_object(Bucket=bucket, Key="hello.txt")["Body"].read().decode())
