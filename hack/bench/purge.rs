//! How fast a bucket is emptied: as fast as the store lets a bare client do it, over a slow network, and where S3
//! throttles it.

use std::time::Duration;

use crate::floor::Floor;
use crate::measure::{Work, by_floor, by_operator};
use crate::network::{Counts, Kind, Network, Proxy};
use crate::operator::Operator;
use crate::parts::Bench;
use crate::table::Row;
use crate::{Failure, load, say};

/// The folders in which objects lie where the network is slow, and the milliseconds that each call takes there.
const FOLDERS: usize = 8;
const DELAY: u64 = 150;
/// DeleteObjects calls a second that S3 accepts for the first half of the objects.
const SLOW: f64 = 2.0;
/// And for the second: more than anybody sends.
const FAST: f64 = 1000.0;
/// Objects in one DeleteObjects.
const BATCH: f64 = 1000.0;
/// Most objects where each thousand of them takes a known time.
const FEW: usize = 40_000;

/// What a bucket holds.
#[derive(Clone, Copy)]
struct Content {
    objects: usize,
    folders: usize,
}

impl Content {
    fn versions(self) -> usize {
        self.objects / 4
    }

    fn all(self) -> usize {
        self.objects + self.versions()
    }
}

impl Bench {
    /// Claims are deleted whose buckets hold so many objects and a quarter as many further versions.
    pub(crate) async fn purge(&mut self, objects: usize) -> Result<(), Failure> {
        let flat = Content { objects, folders: 0 };
        let rate = self.emptied("purged", flat).await?;

        let proxy = Proxy::start(Network { delay: DELAY, ..Network::default() }, &self.url)?;
        let url = std::mem::replace(&mut self.url, proxy.url.clone());
        let few = objects.min(FEW);
        let in_folders = Content { objects: few, folders: FOLDERS };
        self.emptied(&format!("{FOLDERS} folders, {DELAY} ms"), in_folders).await?;
        self.url = url;

        self.slowed_down(Content { objects: few, folders: 0 }, rate).await
    }

    /// The operator beside the floor; returns what the floor deletes in a second.
    async fn emptied(&mut self, name: &str, content: Content) -> Result<f64, Failure> {
        say(&format!("{name}: a bucket of {} objects and versions", content.all()));
        let operator = Operator::start(&self.url).await?;
        operator.during(load::create(&self.kubernetes, 1)).await?;
        let policy = self.policy().await?;
        self.fill(content).await?;
        operator.settle().await?;
        let work = load::delete(&self.kubernetes);
        let ours = by_operator(&self.kubernetes, &operator, name, content.all(), 1, work).await?;
        operator.stop().await?;
        Floor::new(&self.url, &policy).await?.create(1).await?;
        self.fill(content).await?;
        let floor = by_floor(&self.kubernetes, &self.url, &ours, 1, &policy, Work::Delete).await?;
        let rate = content.all() as f64 / floor.seconds;
        self.in_all.extend([ours, floor]);
        self.check_nothing_left().await?;
        Ok(rate)
    }

    /// S3 accepts few deletions at first. The floor is what it accepts, and then `rate`.
    async fn slowed_down(&mut self, content: Content, rate: f64) -> Result<(), Failure> {
        say(&format!("slowed down: a bucket of {} objects and versions", content.all()));
        let mut proxy = Proxy::start(Network::default(), &self.url)?;
        let operator = Operator::start(&proxy.url).await?;
        operator.during(load::create(&self.kubernetes, 1)).await?;
        self.fill(content).await?;
        operator.settle().await?;
        proxy.limit(Kind::DeleteObjects, SLOW)?;
        let half = content.all() as f64 / 2.0;
        let mut sum = Counts { sent: 0, refused: 0 };
        let work = async {
            let relief = async {
                while ((sum.sent - sum.refused) as f64) < half / BATCH {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    sum = sum.and(proxy.counts(Kind::DeleteObjects)?);
                }
                proxy.limit(Kind::DeleteObjects, FAST)
            };
            Ok(tokio::try_join!(load::delete(&self.kubernetes), relief)?.0)
        };
        let ours = by_operator(&self.kubernetes, &operator, "slowed down", content.all(), 1, work).await?;
        sum = sum.and(proxy.counts(Kind::DeleteObjects)?);
        say(&format!("slowed down: {} DeleteObjects, {} of them refused", sum.sent, sum.refused));
        operator.stop().await?;
        let limit = half / BATCH / SLOW + half / rate;
        let floor = Row { ratio: Some(ours.seconds / limit), ..Row::new("slowed down, limit", content.all(), limit) };
        self.in_all.extend([ours, floor]);
        self.check_nothing_left().await
    }

    /// The bucket of the only claim.
    async fn fill(&self, Content { objects, folders }: Content) -> Result<(), Failure> {
        let (bucket, _) = self.kubernetes.bucket_and_user().await?;
        self.store.fill(&bucket, objects, Content { objects, folders }.versions(), folders).await
    }
}
