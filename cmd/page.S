/* The report page as bytes of the program: rubato_page .. rubato_page_end. */
    .section .rodata
    .global rubato_page
    .global rubato_page_end
rubato_page:
    .incbin RUBATO_PAGE
rubato_page_end:
    .byte 0
    .section .note.GNU-stack,"",%progbits
