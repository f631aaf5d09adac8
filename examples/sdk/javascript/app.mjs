import { GetObjectCommand, PutObjectCommand, S3Client } from "@aws-sdk/client-s3";

const Bucket = process.env.BUCKET_NAME;
const s3 = new S3Client({});
await s3.send(new PutObjectCommand({ Bucket, Key: "hello.txt", Body: "hello from JavaScript" }));
const object = await s3.send(new GetObjectCommand({ Bucket, Key: "hello.txt" }));
console.log(await object.Body.transformToString());
