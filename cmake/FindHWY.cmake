# Google Highway, whose Debian package ships a pkg-config file.
#   HWY::HWY   what to link
find_path(HWY_INCLUDE_DIR hwy/highway.h)
find_library(HWY_LIBRARY NAMES hwy)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(HWY REQUIRED_VARS HWY_LIBRARY HWY_INCLUDE_DIR
                                  REASON_FAILURE_MESSAGE "on Debian: apt-get install libhwy-dev")
if(HWY_FOUND AND NOT TARGET HWY::HWY)
  add_library(HWY::HWY UNKNOWN IMPORTED)
  set_target_properties(HWY::HWY PROPERTIES IMPORTED_LOCATION "${HWY_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${HWY_INCLUDE_DIR}"
                        INTERFACE_COMPILE_DEFINITIONS HWY_SHARED_DEFINE)
endif()
