import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;

public class App {
    public static void main(String[] arguments) {
        String bucket = System.getenv("BUCKET_NAME");
        try (S3Client s3 = S3Client.create()) {
            s3.putObject(to -> to.bucket(bucket).key("hello.txt"), RequestBody.fromString("hello from Java"));
            System.out.println(s3.getObjectAsBytes(from -> from.bucket(bucket).key("hello.txt")).asUtf8String());
        }
    }
}
