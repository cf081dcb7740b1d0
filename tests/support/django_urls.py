"""Pages of a Django project: an upload with a login and a CSRF token, the facts about a request, and a streamed response."""

import os
import time

from django.contrib import admin
from django.contrib.auth.decorators import login_required
from django.core.files.storage import default_storage
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.template import engines
from django.urls import path

FORM = "<form method=post enctype=multipart/form-data>{% csrf_token %}<input type=file name=file></form>"


@login_required(login_url="/admin/login/")
def upload(request):
    if request.method == "POST":
        file = request.FILES["file"]
        return redirect(default_storage.url(default_storage.save(file.name, file)))
    return HttpResponse(engines["django"].from_string(FORM).render({}, request))


def about(request):
    return HttpResponse(f"{request.build_absolute_uri()} {request.META['HTTP_X_FORWARDED_FOR']}")


def stream(request):
    def parts():
        yield "first\n"
        while not os.path.exists("go-on"):
            time.sleep(0.05)
        yield "second\n"

    return StreamingHttpResponse(parts(), content_type="text/plain")


urlpatterns = [
    path("admin/", admin.site.urls),
    path("upload/", upload),
    path("about/", about),
    path("stream/", stream),
]
