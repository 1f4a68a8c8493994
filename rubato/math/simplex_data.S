/* The solver's module as bytes of the program: rubato_simplex .. rubato_simplex_end. */
    .section .rodata
    .global rubato_simplex
    .global rubato_simplex_end
rubato_simplex:
    .incbin RUBATO_SIMPLEX
rubato_simplex_end:
    .byte 0
    .section .note.GNU-stack,"",%progbits
