# compile_together(TARGET FILES) compiles the sources of a folder in groups of so many. The compiler then reads the
# headers, and generates the code of the templates in them, once for a group: this takes about half the time.
#
# The price: a change of one file compiles its group, and two files of a folder must not define the same name in their
# unnamed namespaces. Files with options of their own are compiled alone.
#
# CMake's own UNITY_BUILD writes absolute paths into its groups, so ccache would share nothing between clones. The
# groups here name their files from the root of the project.
function(compile_together target files)
  get_target_property(sources ${target} SOURCES)
  set(alone "")
  set(groups "")
  foreach(source ${sources})
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options OR NOT source MATCHES "\\.cc$")
      list(APPEND alone ${source})
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
    get_filename_component(folder ${source} DIRECTORY)
    get_filename_component(folder ${folder} NAME)
    math(EXPR count_of_${folder} "0${count_of_${folder}} + 1")
    math(EXPR number "(${count_of_${folder}} - 1) / ${files}")
    set(group ${folder}_${number})
    list(APPEND groups ${group})
    string(APPEND text_of_${group} "// NOLINTNEXTLINE(bugprone-suspicious-include)\n#include \"${path}\"\n")
  endforeach()
  list(REMOVE_DUPLICATES groups)
  set(group_files "")
  foreach(group ${groups})
    set(file ${CMAKE_BINARY_DIR}/together/${target}/${group}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text_of_${group}}" @ONLY)
    list(APPEND group_files ${file})
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${alone};${group_files}")
endfunction()
