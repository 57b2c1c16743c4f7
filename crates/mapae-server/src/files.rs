//! Which file store is the database's.

use mapae::blob::{BlobError, BlobName};
use mapae::job::State;
use mapae::store::contract::{JobFilter, Page, Scope};

use crate::runtime::{OpenError, Runtime};

/// Jobs that wait or run whose files are looked for where it is not known yet which file store this is.
const LOOKED_AT: usize = 100;

impl Runtime {
    /// The file store is the one that the database knows, which knows it from now on if it knew none. For whatever
    /// writes files, or gives a job up whose file is not there.
    pub async fn own_files(&self) -> Result<(), OpenError> {
        let known = match self.store.files().await? {
            Some(known) => known,
            None => {
                self.holds_files().await?;
                self.store.adopt_files(self.blobs.identify().await?).await?
            }
        };
        self.blobs.expect(known);
        Ok(self.blobs.verify().await?)
    }

    /// As [`own_files`](Self::own_files), for a command of somebody who may be anywhere: a server's database learns
    /// its file store from those who serve and work.
    pub async fn share_files(&self) -> Result<(), OpenError> {
        if self.store.name() != "sqlite" && self.store.files().await?.is_none() {
            return Ok(());
        }
        self.own_files().await
    }

    /// Of a database that is older than the identity of file stores: the files of jobs that have not ended are here.
    /// Where none of them is, this is another store, or its disk is not mounted yet.
    async fn holds_files(&self) -> Result<(), OpenError> {
        let mut missing = 0;
        for state in [State::Pending, State::Running] {
            let filter = JobFilter { state: Some(state), ..JobFilter::default() };
            for job in
                self.store.jobs(&Scope::All, &filter, &Page { after: None, limit: LOOKED_AT }).await?.jobs
            {
                let name = job.source.as_ref().and_then(|source| BlobName::parse(&source.file).ok());
                match name {
                    None => {}
                    Some(name) => match self.blobs.get(&name).await {
                        Ok(_) => return Ok(()),
                        Err(BlobError::Missing) => missing += 1,
                        Err(error) => return Err(error.into()),
                    },
                }
            }
        }
        if missing == 0 {
            return Ok(());
        }
        let why =
            format!("it holds none of the files of {missing} jobs that wait; mount it, or cancel these jobs");
        Err(BlobError::Unavailable(why.into()).into())
    }
}
