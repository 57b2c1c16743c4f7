//! HTML and Markdown: what a person reads, in whatever encoding it came.

use encoding_rs::EUC_KR;
use mapae_document::child::Request;

use super::{cells, headings, tables};
use crate::{file, make, named, patient, read, reader};

#[tokio::test]
async fn html_gives_what_a_browser_shows() {
    let html = "<!doctype html><html><head><title>숨은 제목</title><style>p { color: red }</style></head><body>\
        <h1>첫째 <b>제목</b></h1><p>한 문단이\n   두 줄에<br>있다 &amp; &#44032;<script>alert('아니')</script>\
        <ul><li>하나<li>둘</ul><pre>두  칸\n그대로</pre></body>";
    let document = read("a.html", html.as_bytes()).await.unwrap();
    assert_eq!(document.text, "첫째 제목\n한 문단이 두 줄에\n있다 & 가\n하나\n둘\n두  칸\n그대로");
    assert_eq!(headings(&document), [(1, "첫째 제목".to_owned())]);
    assert_eq!(document.source.media_type, "text/html");
}

#[tokio::test]
async fn tables_of_html_need_no_ends() {
    let html = "<table><caption>표 제목</caption><thead><tr><th rowspan=2>구분<th colspan=2>금액<tr><th>작년<th>올해\
        <tbody><tr><td>복지<td>312<td><table><tr><td>속</table></table><p>뒤";
    let document = read("a.htm", html.as_bytes()).await.unwrap();
    let [outer, inner] = tables(&document) else { panic!("two tables") };
    assert_eq!(
        cells(outer),
        [
            (0, 0, 2, 1, "구분"),
            (0, 1, 1, 2, "금액"),
            (1, 1, 1, 1, "작년"),
            (1, 2, 1, 1, "올해"),
            (2, 0, 1, 1, "복지"),
            (2, 1, 1, 1, "312"),
            (2, 2, 1, 1, "속"),
        ]
    );
    assert_eq!((outer.title.as_deref(), outer.header_rows, inner.inside), (Some("표 제목"), 2, Some(1)));
    assert!(document.text.ends_with("\n뒤"));
}

#[tokio::test]
async fn html_is_read_in_the_encoding_it_declares_or_has() {
    let page = "<meta http-equiv=\"Content-Type\" content=\"text/html; charset=euc-kr\"><p>한글 문서</p>";
    assert_eq!(read("a.html", &EUC_KR.encode(page).0).await.unwrap().text, "한글 문서");
    // What declares one and is another is taken for what it is.
    assert_eq!(read("a.html", page.replace("euc-kr", "utf-8").as_bytes()).await.unwrap().text, "한글 문서");
    let lies = EUC_KR.encode(&page.replace("euc-kr", "utf-8")).0.into_owned();
    assert_eq!(read("a.html", &lies).await.unwrap().text, "한글 문서");
}

#[tokio::test]
async fn markdown_gives_text_headings_and_tables() {
    let markdown = "---\ntitle: x\n---\n# 제목\n\n*굵은* 글과 `코드`,\n이어진 줄\n\n- 하나\n  - 둘\n\n\
        | 분야 | 금액 |\n|---|---:|\n| 복지 | 312 |\n\n소제목\n---\n\n```\nlet x;\n```\n";
    let document = read("a.md", markdown.as_bytes()).await.unwrap();
    assert_eq!(
        document.text,
        "제목\n굵은 글과 코드, 이어진 줄\n하나\n둘\n분야\t금액\n복지\t312\n소제목\nlet x;"
    );
    assert_eq!(headings(&document), [(1, "제목".to_owned()), (2, "소제목".to_owned())]);
    let [table] = tables(&document) else { panic!("one table") };
    assert_eq!(cells(table)[3], (1, 1, 1, 1, "312"));
    assert_eq!(table.header_rows, 1);
}

#[tokio::test]
async fn the_media_type_counts_where_the_name_says_nothing() {
    let declared = |media_type: &str| Request { media_type: Some(media_type.into()), ..named("upload") };
    let html = reader().parse(file(b"<h1>x</h1>"), declared("text/html; charset=utf-8"), &patient()).await;
    assert_eq!(html.unwrap().text, "x");
    assert_eq!(read("upload", b"\n<!DOCTYPE html><p>x</p>").await.unwrap().text, "x");
    let docx = make::zip(&[("word/document.xml", b"<w:body><w:p><w:r><w:t>x</w:t></w:r></w:p></w:body>")]);
    assert_eq!(read("upload", &docx).await.unwrap().text, "x");
}
