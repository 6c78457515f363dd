//! What stands beside ours, on the same rows and in the same run.

use std::{
    fs::{self, File},
    path::Path,
};

/// Copies a folder and syncs each file.
pub(super) fn copy(from: &Path, to: &Path) -> u64 {
    fs::create_dir_all(to).expect("it is made");
    let mut bytes = 0;
    for entry in fs::read_dir(from).expect("it is there") {
        let entry = entry.expect("it is there");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("it is known").is_dir() {
            bytes += copy(&entry.path(), &target);
            continue;
        }
        bytes += fs::copy(entry.path(), &target).expect("it is copied");
        File::open(&target)
            .and_then(|it| it.sync_all())
            .expect("it is synced");
    }
    bytes
}

/// The bytes of all files in a folder.
pub(super) fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("it is there");
    let sizes = entries.map(|entry| {
        let entry = entry.expect("it is there");
        let meta = entry.metadata().expect("it is known");
        if meta.is_dir() {
            bytes_in(&entry.path())
        } else {
            meta.len()
        }
    });
    sizes.sum()
}

#[cfg(feature = "rocksdb")]
pub(super) use of_rocksdb::{bare, stop_and_wait};

#[cfg(feature = "rocksdb")]
mod of_rocksdb {
    use std::{fs::File, net::SocketAddr, path::Path};

    use bytes::Bytes;
    use rocksdb::{
        BlockBasedOptions, DB, DBCompressionType, Options, SstFileWriter, WriteBatch, WriteOptions,
    };
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::super::rows;

    const FILE_BYTES: u64 = 64 << 20;

    /// As those of our backend, where it matters here.
    fn options() -> Options {
        let mut table = BlockBasedOptions::default();
        table.set_block_size(16 << 10);
        table.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.set_block_based_table_factory(&table);
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_write_buffer_size(64 << 20);
        options
    }

    /// Writes sorted files of rows that are in memory, and syncs them.
    pub(in super::super) fn bare(folder: &Path, rows: &[(Bytes, Bytes)]) {
        let options = options();
        let mut loads = rows.chunks(1_000).peekable();
        let mut files = 0;
        while loads.peek().is_some() {
            let path = folder.join(format!("{files:04}.sst"));
            let mut writer = SstFileWriter::create(&options);
            writer.open(&path).expect("it is made");
            while writer.file_size() < FILE_BYTES {
                let Some(load) = loads.next() else {
                    break;
                };
                for (key, value) in load {
                    writer.put(key, value).expect("it is taken");
                }
            }
            writer.finish().expect("it is written");
            File::open(&path)
                .and_then(|it| it.sync_all())
                .expect("it is synced");
            files += 1;
        }
    }

    /// The receiver's end of stop and wait; each row may be deleted before it is put, as
    /// BifroMQ's receiver does.
    pub(in super::super) async fn stop_and_wait(
        from: SocketAddr,
        folder: &Path,
        deletes_first: bool,
    ) {
        let database = DB::open(&options(), folder).expect("it opens");
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        let mut stream = TcpStream::connect(from).await.expect("it listens");
        stream.set_nodelay(true).expect("it is a socket");
        let mut count = 0;
        loop {
            let length = stream.read_u32().await.expect("a length");
            if length == 0 {
                break;
            }
            let mut chunk = vec![0; length as usize];
            stream.read_exact(&mut chunk).await.expect("a chunk");
            let mut chunk = Bytes::from(chunk);
            let mut batch = WriteBatch::default();
            while !chunk.is_empty() {
                let mut part = || {
                    let length = chunk.split_to(4);
                    let length = u32::from_be_bytes(length.as_ref().try_into().expect("four"));
                    chunk.split_to(length as usize)
                };
                let key = part();
                if deletes_first {
                    batch.delete(&key);
                }
                batch.put(key, part());
                count += 1;
            }
            database.write_opt(batch, &write).expect("it is taken");
            stream.write_u8(1).await.expect("it is taken");
        }
        database.flush().expect("it is written");
        assert_eq!(count, rows::count());
    }
}
