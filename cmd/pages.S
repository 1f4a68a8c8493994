/* What build.mjs of web/ has made, as bytes of the program: rubato_report .. rubato_report_end, and so on. */
    .section .rodata
.macro carry name, file
    .global rubato_\name
    .global rubato_\name\()_end
rubato_\name:
    .incbin "\file"
rubato_\name\()_end:
    .byte 0
.endm
    carry report, "report.html"
    carry study, "study.html"
    carry page, "page.html"
    carry page_script, "page.js"
    carry page_style, "page.css"
    carry page_worker, "worker.js"
    .section .note.GNU-stack,"",%progbits
