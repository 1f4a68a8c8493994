# compile_together(TARGET FILES) compiles the sources of a folder in groups of so many. The compiler then reads the
# headers, and generates the code of the templates in them, once for a group: this takes about half the time.
#
# The price: a change of one file compiles its group, and two files of a folder must not define the same name in their
# unnamed namespaces. Files with options of their own are compiled alone.
function(compile_together target files)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_filename_component(folder ${source} DIRECTORY)
    get_filename_component(folder ${folder} NAME)
    math(EXPR count_of_${folder} "0${count_of_${folder}} + 1")
    math(EXPR group "(${count_of_${folder}} - 1) / ${files}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP
    UNITY_BUILD_CODE_BEFORE_INCLUDE "// NOLINTNEXTLINE(bugprone-suspicious-include)")
endfunction()
