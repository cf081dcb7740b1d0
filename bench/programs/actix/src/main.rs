//! actix-web with all files in memory, by path: the design of binserve.
//!
//! Arguments: host, port, workers, folder.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::{self, Bytes, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};

struct File {
    kind: String,
    content: Bytes,
}

type Files = HashMap<String, File>;

#[actix_web::main]
async fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, port, workers, folder] = match <[String; 4]>::try_from(arguments) {
        Ok(four) => four,
        Err(other) if other == ["--version"] => {
            println!("anthill-bench-actix, actix-web {}", env!("ACTIX_VERSION"));
            return Ok(());
        }
        Err(_) => return Err(io::Error::other("arguments: HOST PORT WORKERS FOLDER")),
    };
    let number = |text: &str| text.parse::<u16>().map_err(io::Error::other);
    let (port, workers) = (number(&port)?, number(&workers)?);
    let mut files = Files::new();
    load(Path::new(&folder), "", &mut files)?;
    let files = Data::new(files);
    HttpServer::new(move || App::new().app_data(files.clone()).default_service(web::to(answer)))
        .workers(usize::from(workers))
        .backlog(65535)
        .bind((host, port))?
        .run()
        .await
}

async fn answer(request: HttpRequest, files: Data<Files>) -> HttpResponse {
    match files.get(request.path()) {
        Some(file) => HttpResponse::Ok()
            .insert_header((CONTENT_TYPE, file.kind.as_str()))
            .body(file.content.clone()),
        None => HttpResponse::NotFound().finish(),
    }
}

/// Loads all files of a folder by path; an index file also by the path of its folder.
fn load(folder: &Path, prefix: &str, files: &mut Files) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{prefix}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            load(&entry.path(), &path, files)?;
            continue;
        }
        let kind = mime_guess::from_path(entry.path()).first_or_octet_stream().to_string();
        let content = Bytes::from(std::fs::read(entry.path())?);
        if path.ends_with("/index.html") {
            let file = File { kind: kind.clone(), content: content.clone() };
            files.insert(format!("{prefix}/"), file);
        }
        files.insert(path, File { kind, content });
    }
    Ok(())
}
