//! Object listings: all objects under an address, or only those that a walk of a file tree would find.
//!
//! Two kinds of keys do not fit a file tree. First, tools represent folders as empty objects whose key ends with a
//! slash. Second, a key may have empty parts, `..` or control characters. The client rejects a listing page that
//! contains such a key. It is requested again in smaller pages until the key is alone on its page and can be skipped.

use object_store::list::PaginatedListOptions;
use object_store::path::Error as PathError;
use object_store::{Error as Failure, ObjectMeta};

use super::super::object::{FileListing, Object};
use super::super::object_url::ObjectUrl;
use super::bucket::{Bucket, object};
use super::client::{ListingClient, retry_truncated};
use super::failure::failure;
use super::runtime;
use crate::error::{Error, Result};

/// Keys per page after a page of the default size was rejected. Stores send up to 1,000.
const SMALLER_PAGE: usize = 100;
/// Factor by which the page size shrinks after a rejected page and grows after an accepted one.
const STEP: usize = 10;

impl Bucket {
    /// Lists all objects whose key starts with that of `folder` and a slash, in byte order of the keys.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::error::ErrorKind) if the store cannot be queried.
    pub fn list(&self, folder: &ObjectUrl) -> Result<Vec<Object>> {
        Ok(self.list_all(folder)?.objects)
    }

    /// Like [`Self::list`], but without objects that represent folders.
    ///
    /// # Errors
    ///
    /// Same as [`Self::list`].
    pub fn list_files(&self, folder: &ObjectUrl) -> Result<FileListing> {
        let mut listing = self.list_all(folder)?;
        self.drop_folders(folder, &mut listing.objects)?;
        Ok(listing)
    }

    /// Returns whether there are any objects under `folder`. An empty object that represents `folder` itself does not
    /// count.
    ///
    /// # Errors
    ///
    /// Same as [`Self::list`].
    pub fn holds(&self, folder: &ObjectUrl) -> Result<bool> {
        let (store, prefix) = (self.listing_client(folder)?, prefix(folder));
        // The object that represents the folder, which comes first, and another one.
        let options = PaginatedListOptions { max_keys: Some(2), ..PaginatedListOptions::default() };
        let page = runtime::current()?.wait(async move {
            retry_truncated(|| store.list_paginated(prefix.as_deref(), options.clone())).await
        })?;
        // The client strips the trailing slash.
        let is_folder = |object: &ObjectMeta| object.size == 0 && object.location.as_ref() == folder.key();
        match page {
            Ok(page) => Ok(page.page_token.is_some() || !page.result.objects.iter().all(is_folder)),
            // There is a key, although it is not a valid path.
            Err(Failure::InvalidPath { .. }) => Ok(true),
            Err(e) => Err(failure("list", folder, e)),
        }
    }

    fn list_all(&self, folder: &ObjectUrl) -> Result<FileListing> {
        let (store, prefix) = (self.listing_client(folder)?, prefix(folder));
        let listed = runtime::current()?.wait(async move { list(&store, prefix.as_deref()).await })?;
        let (found, mut unusable) = listed.map_err(|e| failure("list", folder, e))?;
        let mut objects = Vec::with_capacity(found.len());
        for meta in found {
            // Fails for keys with non-ASCII control characters.
            match ObjectUrl::parse(format!("{}/{}", folder.root(), meta.location).as_ref()) {
                Ok(Some(url)) => objects.push(object(url, &meta)),
                _ => unusable.push(meta.location.to_string()),
            }
        }
        objects.sort_by(|a, b| a.url.key().cmp(b.url.key()));
        Ok(FileListing { objects, unusable })
    }

    fn listing_client(&self, folder: &ObjectUrl) -> Result<ListingClient> {
        self.pages()?.ok_or_else(|| Error::usage("web servers cannot be listed").at_path(folder.as_path()))
    }

    /// Removes objects that represent folders. The client strips the trailing slash, so an empty object may be a folder
    /// or a file.
    fn drop_folders(&self, folder: &ObjectUrl, objects: &mut Vec<Object>) -> Result<()> {
        let has_children = |key: &str| {
            let prefix = format!("{key}/");
            let at = objects.partition_point(|object| object.url.key() < prefix.as_str());
            objects.get(at).is_some_and(|object| object.url.key().starts_with(&prefix))
        };
        let is_repeated = |at: usize| at > 0 && objects[at - 1].url == objects[at].url;
        let mut unclear = Vec::new();
        let mut is_folder = Vec::with_capacity(objects.len());
        for (at, object) in objects.iter().enumerate() {
            let key = object.url.key();
            let is_certain =
                is_repeated(at) || (object.bytes == 0 && (key == folder.key() || has_children(key)));
            if object.bytes == 0 && !is_certain {
                unclear.push(at);
            }
            is_folder.push(is_certain);
        }
        let urls: Vec<ObjectUrl> = unclear.iter().map(|&at| objects[at].url.clone()).collect();
        for (at, found) in unclear.into_iter().zip(self.heads(&urls)?) {
            is_folder[at] = found.is_none();
        }
        let mut is_folder = is_folder.into_iter();
        objects.retain(|_| !is_folder.next().unwrap_or_default());
        Ok(())
    }
}

fn prefix(folder: &ObjectUrl) -> Option<String> {
    (!folder.key().is_empty()).then(|| format!("{}/", folder.key()))
}

/// Lists all objects whose key starts with `prefix`, and the keys that are not valid paths.
async fn list(
    store: &ListingClient,
    prefix: Option<&str>,
) -> Result<(Vec<ObjectMeta>, Vec<String>), Failure> {
    let (mut objects, mut unusable): (Vec<ObjectMeta>, Vec<String>) = (Vec::new(), Vec::new());
    // Maximum keys per page; `None` leaves it to the store.
    let mut page_keys: Option<usize> = None;
    let mut page_token = None;
    loop {
        let options = PaginatedListOptions {
            offset: unusable.last().cloned(),
            max_keys: page_keys,
            page_token: page_token.clone(),
            ..PaginatedListOptions::default()
        };
        match retry_truncated(|| store.list_paginated(prefix, options.clone())).await {
            Ok(page) => {
                objects.extend(page.result.objects);
                if page.page_token.is_none() {
                    return Ok((objects, unusable));
                }
                page_token = page.page_token;
                page_keys = page_keys
                    .map(|page_keys| page_keys * STEP)
                    .filter(|&page_keys| page_keys <= SMALLER_PAGE);
            }
            Err(Failure::InvalidPath { .. }) if page_keys != Some(1) => {
                page_keys = Some(page_keys.map_or(SMALLER_PAGE, |page_keys| page_keys / STEP).max(1));
            }
            Err(Failure::InvalidPath { source }) => {
                let key = raw_key(&source).filter(|key| unusable.last() != Some(key));
                // If the store returns the same key again, the keys after it cannot be listed.
                let Some(key) = key else { return Err(Failure::InvalidPath { source }) };
                unusable.push(key);
                page_token = None;
            }
            Err(e) => return Err(e),
        }
    }
}

/// Returns the key that is not a valid path.
fn raw_key(error: &PathError) -> Option<String> {
    match error {
        PathError::EmptySegment { path }
        | PathError::BadSegment { path, .. }
        | PathError::NonUnicode { path, .. } => Some(path.clone()),
        _ => None,
    }
}
