package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

func main() {
	if err := run(context.Background(), os.Getenv("BUCKET_NAME")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, bucket string) error {
	settings, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	client := s3.NewFromConfig(settings)
	_, err = client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: aws.String(bucket),
		Key:    aws.String("hello.txt"),
		Body:   strings.NewReader("hello from Go"),
	})
	if err != nil {
		return err
	}
	object, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String("hello.txt")})
	if err != nil {
		return err
	}
	defer object.Body.Close()
	text, err := io.ReadAll(object.Body)
	fmt.Println(string(text))
	return err
}
