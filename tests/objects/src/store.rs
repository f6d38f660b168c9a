//! In-memory objects, and the S3 requests on them.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::faults::Faults;
use crate::http::{Request, Response};

/// Default number of objects per page of a listing.
const PAGE: usize = 1000;
/// Time of the first object: 2024-01-01, in seconds since 1970. Each later object has a later time.
const EPOCH: u64 = 1_704_067_200;
/// Bucket of requests that name none.
const WEB: &str = "web";

/// A stored object.
#[derive(Debug, Clone)]
pub struct StoredObject {
    /// Content of the object.
    pub content: Arc<[u8]>,
    /// Entity tag, in quotes.
    pub etag: String,
    /// Time of the last change, in seconds since 1970.
    pub modified: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    /// Objects by `bucket/key`.
    objects: BTreeMap<String, StoredObject>,
    buckets: std::collections::BTreeSet<String>,
    uploads: BTreeMap<String, BTreeMap<u32, Vec<u8>>>,
    puts: u64,
}

impl Store {
    pub(crate) fn put(&mut self, key: &str, content: Vec<u8>) -> String {
        let mut hash = DefaultHasher::new();
        content.hash(&mut hash);
        let etag = format!("\"{:016x}-{}\"", hash.finish(), content.len());
        let modified = EPOCH + self.puts;
        self.puts += 1;
        self.buckets.insert(key.split('/').next().unwrap_or_default().to_owned());
        let stored = StoredObject { content: content.into(), etag: etag.clone(), modified };
        self.objects.insert(key.to_owned(), stored);
        etag
    }

    pub(crate) fn get(&self, key: &str) -> Option<&StoredObject> {
        self.objects.get(key)
    }

    pub(crate) fn delete(&mut self, key: &str) {
        self.objects.remove(key);
    }

    pub(crate) fn keys(&self, prefix: &str) -> Vec<String> {
        self.objects.keys().filter(|key| key.starts_with(prefix)).cloned().collect()
    }

    pub(crate) fn uploads(&self) -> usize {
        self.uploads.len()
    }

    pub(crate) fn answer(&mut self, request: &Request, faults: &Faults) -> Response {
        let path = request.path.trim_start_matches('/');
        let bucket = path.split('/').next().unwrap_or_default().to_owned();
        // The bucket of the tests always exists.
        let exists = bucket == "bucket" || self.buckets.contains(&bucket);
        let key = if exists { path.to_owned() } else { format!("{WEB}/{path}") };
        if !exists && !self.objects.contains_key(&key) {
            return Response::error(404, "NoSuchBucket");
        }
        let query = |name: &str| request.query.get(name);
        let is_bucket = path.trim_end_matches('/') == bucket;
        match request.method.as_str() {
            "GET" if is_bucket && query("list-type").is_some() => self.list(&bucket, request, faults),
            "GET" | "HEAD" => self.read(&key, request, faults),
            "PUT" => match query("partNumber").and_then(|text| text.parse().ok()).zip(query("uploadId")) {
                Some((part, upload)) => self.part(part, upload, &request.body),
                None => self.write(&key, request, faults),
            },
            "POST" if query("uploads").is_some() => {
                self.puts += 1;
                let upload = format!("upload-{}", self.puts);
                self.uploads.insert(upload.clone(), BTreeMap::new());
                xml(format!(
                    "<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
                ))
            }
            "POST" if query("delete").is_some() => self.delete_many(&bucket, &request.body),
            "POST" => match query("uploadId").and_then(|upload| self.uploads.remove(upload)) {
                Some(parts) => {
                    let etag = self.put(&key, parts.into_values().flatten().collect());
                    let etag = escaped(&etag);
                    xml(format!(
                        "<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
                    ))
                }
                // For a while, S3 answers a repeated completion like the first one.
                None => match self.objects.get(&key) {
                    Some(stored) => {
                        let etag = escaped(&stored.etag);
                        xml(format!(
                            "<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
                        ))
                    }
                    None => Response::error(404, "NoSuchUpload"),
                },
            },
            "DELETE" => {
                match query("uploadId") {
                    Some(upload) => drop(self.uploads.remove(upload)),
                    None => self.delete(&key),
                }
                Response { status: 204, ..Response::default() }
            }
            _ => Response::error(400, "NotImplemented"),
        }
    }

    fn read(&self, key: &str, request: &Request, faults: &Faults) -> Response {
        let Some(stored) = self.objects.get(key) else { return Response::error(404, "NoSuchKey") };
        let is_met = |wanted: &str| wanted == stored.etag && !faults.weak_etags;
        if request.header("if-match").is_some_and(|wanted| !is_met(wanted)) {
            return Response::error(412, "PreconditionFailed");
        }
        let all = stored.content.len() as u64;
        let mut headers = vec![
            ("ETag", if faults.weak_etags { format!("W/{}", stored.etag) } else { stored.etag.clone() }),
            ("Last-Modified", http_date(stored.modified)),
            ("Accept-Ranges", "bytes".to_owned()),
        ];
        let range = request.header("range").filter(|_| !faults.ignores_ranges);
        let range = range.and_then(|range| parse_range(range, all));
        if request.method == "HEAD" {
            return Response { status: 200, headers, length: Some(all), ..Response::default() };
        }
        match range {
            None => Response { status: 200, headers, body: stored.content.to_vec(), length: None },
            Some((start, end)) if start < end => {
                headers.push(("Content-Range", format!("bytes {start}-{}/{all}", end - 1)));
                let body = stored.content[start as usize..end as usize].to_vec();
                Response { status: 206, headers, body, length: None }
            }
            Some(_) => Response::error(416, "InvalidRange"),
        }
    }

    fn write(&mut self, key: &str, request: &Request, faults: &Faults) -> Response {
        let current = self.objects.get(key).map(|stored| stored.etag.clone());
        let create = request.header("if-none-match") == Some("*");
        let wanted = request.header("if-match");
        if !faults.ignores_conditions
            && ((create && current.is_some())
                || wanted.is_some_and(|wanted| current.as_deref() != Some(wanted)))
        {
            return Response::error(412, "PreconditionFailed");
        }
        let etag = self.put(key, request.body.clone());
        Response { status: 200, headers: vec![("ETag", etag)], ..Response::default() }
    }

    fn part(&mut self, part: u32, upload: &str, body: &[u8]) -> Response {
        match self.uploads.get_mut(upload) {
            Some(parts) => {
                parts.insert(part, body.to_vec());
                Response {
                    status: 200,
                    headers: vec![("ETag", format!("\"part-{part}\""))],
                    ..Response::default()
                }
            }
            None => Response::error(404, "NoSuchUpload"),
        }
    }

    fn list(&self, bucket: &str, request: &Request, faults: &Faults) -> Response {
        let query = |name: &str| request.query.get(name).map_or("", String::as_str);
        let (prefix, delimiter) = (query("prefix"), query("delimiter"));
        let after = match query("continuation-token") {
            "" => query("start-after"),
            token => token,
        };
        let page = if faults.page == 0 { PAGE } else { faults.page };
        let page = page.min(query("max-keys").parse().unwrap_or(PAGE));
        let (mut contents, mut folders, mut next, mut count) = (String::new(), String::new(), None, 0);
        let mut last_folder = String::new();
        for (full, stored) in self.objects.range(format!("{bucket}/")..) {
            let Some(key) = full.strip_prefix(bucket).and_then(|key| key.strip_prefix('/')) else { break };
            if !key.starts_with(prefix) || (!after.is_empty() && key <= after) {
                continue;
            }
            let rest = &key[prefix.len()..];
            let folder = (!delimiter.is_empty()).then(|| rest.split_once(delimiter)).flatten();
            if let Some((folder, _)) = folder {
                let folder = format!("{prefix}{folder}{delimiter}");
                if folder != last_folder {
                    folders.push_str(&format!(
                        "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>",
                        escaped(&folder)
                    ));
                    last_folder = folder;
                }
                continue;
            }
            if count == page {
                next = Some(());
                break;
            }
            count += 1;
            contents.push_str(&format!(
                "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{}</Size></Contents>",
                escaped(key), iso_date(stored.modified), escaped(&stored.etag), stored.content.len()
            ));
        }
        let next = match next {
            Some(()) => {
                let last = contents.rsplit_once("<Key>").and_then(|(_, rest)| rest.split_once("</Key>"));
                format!("<NextContinuationToken>{}</NextContinuationToken>", last.map_or("", |(key, _)| key))
            }
            None => String::new(),
        };
        xml(format!(
            "<ListBucketResult><IsTruncated>{}</IsTruncated>{next}{contents}{folders}</ListBucketResult>",
            !next.is_empty()
        ))
    }

    fn delete_many(&mut self, bucket: &str, body: &[u8]) -> Response {
        let text = String::from_utf8_lossy(body);
        let mut deleted = String::new();
        for part in text.split("<Key>").skip(1) {
            let key = part.split("</Key>").next().unwrap_or_default();
            self.delete(&format!("{bucket}/{}", unescaped(key)));
            deleted.push_str(&format!("<Deleted><Key>{key}</Key></Deleted>"));
        }
        xml(format!("<DeleteResult>{deleted}</DeleteResult>"))
    }
}

fn xml(body: String) -> Response {
    let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}").into_bytes();
    Response { status: 200, headers: vec![("Content-Type", "application/xml".into())], body, length: None }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")
}

/// Parses start and end of `bytes=…` in an object of `all` bytes.
fn parse_range(text: &str, all: u64) -> Option<(u64, u64)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    match (first.parse::<u64>().ok(), last.parse::<u64>().ok()) {
        (Some(first), Some(last)) => Some((first, (last + 1).min(all))),
        (Some(first), None) => Some((first, all)),
        (None, Some(last)) => Some((all.saturating_sub(last), all)),
        (None, None) => None,
    }
}

/// Returns the year, month and day, and the seconds of the day.
fn civil(time: u64) -> (u64, u64, u64, u64) {
    let days = time / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1, time % 86_400)
}

fn iso_date(time: u64) -> String {
    let (year, month, day, second) = civil(time);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.000Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

fn http_date(time: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day, second) = civil(time);
    format!(
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        DAYS[(time / 86_400 % 7) as usize],
        MONTHS[month as usize - 1],
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_calendar_dates() {
        assert_eq!(iso_date(EPOCH), "2024-01-01T00:00:00.000Z");
        assert_eq!(http_date(EPOCH), "Mon, 01 Jan 2024 00:00:00 GMT");
        assert_eq!(http_date(EPOCH + 59 * 86_400 + 3661), "Thu, 29 Feb 2024 01:01:01 GMT");
        assert_eq!(http_date(951_868_799), "Tue, 29 Feb 2000 23:59:59 GMT");
    }

    #[test]
    fn ranges_are_clipped_to_the_object() {
        assert_eq!(parse_range("bytes=2-5", 4), Some((2, 4)));
        assert_eq!(parse_range("bytes=2-", 4), Some((2, 4)));
        assert_eq!(parse_range("bytes=-3", 4), Some((1, 4)));
        assert_eq!(parse_range("lines=1-2", 4), None);
    }
}
