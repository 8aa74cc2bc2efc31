//! Reading content.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use attache_core::{ArtifactError, ArtifactReader, BoxFuture, OpenedContent};
use bytes::Bytes;

use super::blocking;

pub(super) fn open(file: &Path, expired: &Path) -> Result<OpenedContent, ArtifactError> {
    let failed = |error| ArtifactError::io("opening an artifact", error);
    match File::open(file) {
        Ok(file) => {
            let size = file.metadata().map_err(failed)?.len();
            Ok(OpenedContent::Found(Box::new(FileReader { file: Some(file), size })))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => match expired.exists() {
            true => Ok(OpenedContent::Expired),
            false => Ok(OpenedContent::Missing),
        },
        Err(error) => Err(failed(error)),
    }
}

/// An open file. It stays readable if the content is removed meanwhile.
struct FileReader {
    /// `None` after a read that was interrupted.
    file: Option<File>,
    size: u64,
}

impl ArtifactReader for FileReader {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&mut self, offset: u64, limit: usize) -> BoxFuture<'_, Result<Bytes, ArtifactError>> {
        Box::pin(async move {
            let interrupted = || ArtifactError::Failed("an earlier read was interrupted".to_owned());
            let mut file = self.file.take().ok_or_else(interrupted)?;
            let (file, bytes) = blocking(move || {
                let failed = |error| ArtifactError::io("reading an artifact", error);
                let mut bytes = Vec::with_capacity(limit);
                file.seek(SeekFrom::Start(offset)).map_err(failed)?;
                (&mut file).take(limit as u64).read_to_end(&mut bytes).map_err(failed)?;
                Ok((file, bytes))
            })
            .await?;
            self.file = Some(file);
            Ok(bytes.into())
        })
    }
}
